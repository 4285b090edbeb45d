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
from evalkit.plugin.collection import MARKABLE
from evalkit.plugin.configuration import read_configuration
from evalkit.plugin.marked import MarkedTests
from evalkit.spec.discovery import SKIPPED_FOLDERS, FoundFile, case_or_near_miss, find_cases
from evalkit.spec.loading import load_case
from evalkit.spec.suites import shown_file

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
    refused = None
    try:
        paths = _paths(metafunc, test)
        tests = _plugin(metafunc.config)
        root = tests.configuration.root
        files = list(_found(paths, root, metafunc.definition.path.parent, test))
    except UsageError as error:
        refused = str(error)
    if refused is not None:  # outside of `except`: pytest would show both exceptions
        pytest.fail(refused, pytrace=False)
    cases = [_loaded(file, root, tests.configuration.settings) for file in files]
    names = _names(cases)
    metafunc.parametrize(
        FIXTURE,
        [pytest.param(case, id=names[case.id], marks=tests.marks(_tags(case))) for case in cases],
        indirect=True,
    )


def _plugin(config: pytest.Config) -> MarkedTests:
    found: MarkedTests | None = config.pluginmanager.get_plugin(MarkedTests.NAME)
    if found is None:
        found = MarkedTests(config, read_configuration(config))
        config.pluginmanager.register(found, MarkedTests.NAME)
    return found


def _paths(metafunc: pytest.Metafunc, test: str) -> tuple[str, ...]:
    mark = metafunc.definition.get_closest_marker(MARK)
    assert mark is not None, "asked of marked tests alone"
    example = '@pytest.mark.evalkit("scenarios/desk")'
    if mark.kwargs or not mark.args or not all(isinstance(path, (str, Path)) for path in mark.args):
        given = ", ".join([*map(repr, mark.args), *(f"{name}={value!r}" for name, value in mark.kwargs.items())])
        raise UsageError(
            f"{test}: the mark evalkit takes files, folders or globs, as in {example}; got evalkit({given})"
        )
    if FIXTURE not in metafunc.fixturenames:
        raise UsageError(
            f"{test} is marked with evalkit and does not ask for the fixture {FIXTURE}: "
            f"def {test}({FIXTURE}): {FIXTURE}.run(agent)"
        )
    return tuple(map(str, mark.args))


def _found(paths: Iterable[str], root: Path, beside: Path, test: str) -> Iterator[FoundFile]:
    """The files that the paths name, each once. A path counts from the project's root, else from the test's folder."""
    seen: set[Path] = set()
    for path in paths:
        cases = list(find_cases(_resolved(path, root, beside, test), root))
        if not cases:
            raise UsageError(
                f"{test}: mark evalkit: no case in '{path}'; the name of a case ends in a number: desk_001.yaml"
            )
        for found in cases:
            if found.path not in seen:
                seen.add(found.path)
                yield found


def _resolved(path: str, root: Path, beside: Path, test: str) -> list[str]:
    folders = list(dict.fromkeys((root, beside)))
    if glob.has_magic(path):
        for folder in folders:
            found = sorted(glob.glob(path, root_dir=folder, recursive=True))
            if found:
                files = [name for name in found if _may_be_case(name, folder, root)]
                return [os.fspath(folder / name) for name in files or found if files or (folder / name).is_dir()]
        raise UsageError(f"{test}: mark evalkit: nothing fits '{path}' {_where(folders, root)}")
    for folder in folders:
        if (folder / path).exists():
            return [os.fspath(folder / path)]
    near = did_you_mean(path, [name for folder in folders for name in _neighbours(path, folder)])
    raise UsageError(f"{test}: mark evalkit: there is no '{path}' {_where(folders, root)}{near}")


def _may_be_case(name: str, folder: Path, root: Path) -> bool:
    """Whether a file that a glob has found is a case, or is meant as one: other YAML files may lie beside them."""
    is_skipped = SKIPPED_FOLDERS.intersection(Path(name).parts[:-1])
    return not is_skipped and (folder / name).is_file() and case_or_near_miss(folder / name, root) is not None


def _where(folders: list[Path], root: Path) -> str:
    beside = "" if len(folders) == 1 else f" or in {shown_file(os.fspath(folders[1]), os.fspath(root))}"
    return f"in {root}{beside}"


def _neighbours(path: str, folder: Path) -> Iterator[str]:
    """What `path` may have been meant to be: the part of it that does not exist, exchanged for what is there."""
    parts = Path(path).parts
    for number, part in enumerate(parts):
        if part in ("", ".", "..") or (folder / part).is_dir():
            folder = folder / part
            continue
        known = [entry.name for entry in os.scandir(folder)] if folder.is_dir() else []
        for name in known:
            yield Path(*parts[:number], name, *parts[number + 1 :]).as_posix()
        return


def _loaded(found: FoundFile, root: Path, settings: Settings) -> MarkedCase:
    case_id = shown_file(os.fspath(found.path), os.fspath(root))
    if found.problem is not None:
        return MarkedCase(case_id, None, (found.problem,))
    try:
        return MarkedCase(case_id, load_case(found.path, root=root, settings=settings))
    except SpecError as error:
        return MarkedCase(case_id, None, error.problems)
    except Exception as error:  # a defect of ours must not stop the other tests
        message = f"evalkit failed to load this file: {type(error).__name__}: {error}; please report it"
        return MarkedCase(case_id, None, (Problem(Location(case_id), message),))


def _names(cases: list[MarkedCase]) -> dict[str, str]:
    """Case id -> what the test's node id shows: the stem, or the path where stems are not unique."""
    stems = {case.id: Path(case.id).name.partition(".")[0] for case in cases}
    if len(set(stems.values())) == len(stems):
        return stems
    return {case_id: Path(case_id).with_suffix("").as_posix() for case_id in stems}


def _tags(case: MarkedCase) -> tuple[str, ...]:
    return () if case.case is None else tuple(tag for tag in case.case.tags if re.fullmatch(MARKABLE, tag))
