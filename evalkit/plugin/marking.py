"""`@pytest.mark.evalkit("scenarios/x")`: from what the mark says to one parameter for each case."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from evalkit.errors import Location, Problem, SpecError, UsageError, did_you_mean
from evalkit.model.case import Case
from evalkit.model.settings import Settings
from evalkit.plugin.collection import MARK_PATTERN
from evalkit.plugin.configuration import read_configuration
from evalkit.plugin.marked import MarkedTests
from evalkit.spec.discovery import SKIPPED_FOLDERS, FoundFile, check_file, find_cases
from evalkit.spec.loading import load_case
from evalkit.spec.suites import format_file_path

MARK, FIXTURE = "evalkit", "evalkit_case"


@dataclass(frozen=True, slots=True)
class MarkedCase:
    """A case that a test runs; `case` is None for a broken file, and `problems` says why."""

    id: str
    case: Case | None
    problems: tuple[Problem, ...] = ()


def parametrize(metafunc: pytest.Metafunc) -> None:
    """One test for each case that the nearest mark names. Fails the module's collection if it names none."""
    test = metafunc.function.__name__
    message = None
    try:
        paths = _read_mark(metafunc, test)
        tests = _get_marked_tests(metafunc.config)
        root = tests.configuration.root
        files = list(_find_files(paths, root, metafunc.definition.path.parent, test))
    except UsageError as error:
        message = str(error)
    if message is not None:  # outside of `except`: pytest would show both exceptions
        pytest.fail(message, pytrace=False)
    cases = [_load_marked_case(file, root, tests.configuration.settings) for file in files]
    names = _name_cases(cases)
    metafunc.parametrize(
        FIXTURE,
        [pytest.param(case, id=names[case.id], marks=tests.register_marks(_list_marks(case))) for case in cases],
        indirect=True,
    )


def _get_marked_tests(config: pytest.Config) -> MarkedTests:
    tests: MarkedTests | None = config.pluginmanager.get_plugin(MarkedTests.NAME)
    if tests is None:
        tests = MarkedTests(config, read_configuration(config))
        config.pluginmanager.register(tests, MarkedTests.NAME)
    return tests


def _read_mark(metafunc: pytest.Metafunc, test: str) -> tuple[str, ...]:
    mark = metafunc.definition.get_closest_marker(MARK)
    assert mark is not None, "asked of marked tests alone"
    example = '@pytest.mark.evalkit("scenarios/desk")'
    if mark.kwargs or not mark.args or not all(isinstance(path, (str, Path)) for path in mark.args):
        arguments = ", ".join([*map(repr, mark.args), *(f"{name}={value!r}" for name, value in mark.kwargs.items())])
        raise UsageError(
            f"{test}: the mark evalkit takes files, folders or globs, as in {example}; got evalkit({arguments})"
        )
    if FIXTURE not in metafunc.fixturenames:
        raise UsageError(
            f"{test} is marked with evalkit and does not ask for the fixture {FIXTURE}: "
            f"def {test}({FIXTURE}): {FIXTURE}.run(agent)"
        )
    return tuple(map(str, mark.args))


def _find_files(paths: Iterable[str], root: Path, test_folder: Path, test: str) -> Iterator[FoundFile]:
    """The files that the paths name, each once. A path counts from the project's root, else from the test's folder."""
    visited_paths: set[Path] = set()
    for path in paths:
        cases = list(find_cases(_resolve_path(path, root, test_folder, test), root))
        if not cases:
            raise UsageError(
                f"{test}: mark evalkit: no case in '{path}'; the name of a case ends in a number: desk_001.yaml"
            )
        for file in cases:
            if file.path not in visited_paths:
                visited_paths.add(file.path)
                yield file


def _resolve_path(path: str, root: Path, test_folder: Path, test: str) -> list[str]:
    folders = list(dict.fromkeys((root, test_folder)))
    if glob.has_magic(path):
        for folder in folders:
            matches = sorted(glob.glob(path, root_dir=folder, recursive=True))
            if matches:
                files = [name for name in matches if _may_be_case(name, folder, root)]
                return [os.fspath(folder / name) for name in files or matches if files or (folder / name).is_dir()]
        raise UsageError(f"{test}: mark evalkit: nothing fits '{path}' {_describe_folders(folders, root)}")
    for folder in folders:
        if (folder / path).exists():
            return [os.fspath(folder / path)]
    suggestion = did_you_mean(path, [name for folder in folders for name in _list_alternatives(path, folder)])
    raise UsageError(f"{test}: mark evalkit: there is no '{path}' {_describe_folders(folders, root)}{suggestion}")


def _may_be_case(name: str, folder: Path, root: Path) -> bool:
    """Whether a file that a glob has found is a case, or is meant as one: other YAML files may lie beside them."""
    is_skipped = SKIPPED_FOLDERS.intersection(Path(name).parts[:-1])
    return not is_skipped and (folder / name).is_file() and check_file(folder / name, root) is not None


def _describe_folders(folders: list[Path], root: Path) -> str:
    test_folder = "" if len(folders) == 1 else f" or in {format_file_path(os.fspath(folders[1]), os.fspath(root))}"
    return f"in {root}{test_folder}"


def _list_alternatives(path: str, folder: Path) -> Iterator[str]:
    """What `path` may have been meant to be: the part of it that does not exist, exchanged for what is there."""
    parts = Path(path).parts
    for number, part in enumerate(parts):
        if part in ("", ".", "..") or (folder / part).is_dir():
            folder = folder / part
            continue
        names = [entry.name for entry in os.scandir(folder)] if folder.is_dir() else []
        for name in names:
            yield Path(*parts[:number], name, *parts[number + 1 :]).as_posix()
        return


def _load_marked_case(file: FoundFile, root: Path, settings: Settings) -> MarkedCase:
    case_id = format_file_path(os.fspath(file.path), os.fspath(root))
    if file.problem is not None:
        return MarkedCase(case_id, None, (file.problem,))
    try:
        return MarkedCase(case_id, load_case(file.path, root=root, settings=settings))
    except SpecError as error:
        return MarkedCase(case_id, None, error.problems)
    except Exception as error:  # a defect of ours must not stop the other tests
        message = f"evalkit failed to load this file: {type(error).__name__}: {error}; please report it"
        return MarkedCase(case_id, None, (Problem(Location(case_id), message),))


def _name_cases(cases: list[MarkedCase]) -> dict[str, str]:
    """Case id -> what the test's node id shows: the stem, or the path where stems are not unique."""
    stems = {case.id: Path(case.id).name.partition(".")[0] for case in cases}
    if len(set(stems.values())) == len(stems):
        return stems
    return {case_id: Path(case_id).with_suffix("").as_posix() for case_id in stems}


def _list_marks(case: MarkedCase) -> tuple[str, ...]:
    return () if case.case is None else tuple(tag for tag in case.case.tags if re.fullmatch(MARK_PATTERN, tag))
