"""Case files as pytest items: one file is one item, a broken file is one that errors, its neighbours run.

Collecting reads no more of a file than pytest has to know to select it. Its case is loaded just ahead of its run.
"""

from __future__ import annotations

import os
import re
from collections.abc import Generator, Iterator
from functools import cached_property
from pathlib import Path
from sys import intern
from typing import TYPE_CHECKING

import pytest
from msgspec import Struct

from evalkit.errors import Location, Problem, SpecError
from evalkit.model.case import Case
from evalkit.model.verdict import Verdict
from evalkit.plugin.configuration import Configuration
from evalkit.spec.discover import is_case_name
from evalkit.spec.load import load_case
from evalkit.spec.source import format_file_path
from evalkit.spec.tag_scan import TagScanner

if TYPE_CHECKING:
    from pluggy import HookRelay

    from evalkit.plugin.case_runner import CaseRunner


RUNNER: pytest.StashKey[CaseRunner] = pytest.StashKey()
MARKED_CASE_ID: pytest.StashKey[str] = pytest.StashKey()  # of an ordinary test that runs a case: the case's id

LoadedCase = tuple[Case | None, tuple[Problem, ...]]

_IGNORE_NAMES = ("collect_ignore", "collect_ignore_glob")  # what conftest files say of it
MARK_PATTERN = r"[A-Za-z0-9][\w.-]*"


class CasePaths(Struct, frozen=True):
    """Where cases are. `case_folders` are evalkit_paths; `named` is what the command line says, empty for nothing."""

    case_folders: tuple[Path, ...]
    arguments: tuple[Path, ...]

    @property
    def is_partial(self) -> bool:
        """Whether the command line names less than all case folders."""
        return bool(self.arguments) and not all(
            any(folder.is_relative_to(path) for path in self.arguments) for folder in self.case_folders
        )

    def build_prefixes(self) -> tuple[str, ...]:
        """What the path of a file begins with that lies where cases are looked for. A named folder that contains the
        case folders (the project's root, say) adds nothing to them: other YAML files in it, such as cassettes, bear
        the names of cases too."""
        folders = (
            path
            for path in self.arguments
            if not any(folder.is_relative_to(path) and folder.exists() for folder in self.case_folders)
        )
        return tuple(os.fspath(folder) + os.sep for folder in (*self.case_folders, *folders))


class Collection:
    """The hooks of collection."""

    def __init__(self, config: pytest.Config, configuration: Configuration, paths: CasePaths) -> None:
        self._config = config
        self._configuration = configuration
        self._argument_paths = frozenset(os.fspath(path) for path in paths.arguments)
        self._prefixes = paths.build_prefixes()
        self._registered_marks: set[str] = set()
        self._tag_scan = TagScanner(configuration.root)
        self._has_kept_case = False
        self._can_ignore: bool | None = None  # whether any file may be ignored; None: not known yet
        self.folder_hooks: dict[str, HookRelay] = {}

    def pytest_plugin_registered(self) -> None:
        """A conftest file, mostly: what was found out of all of them is found out anew."""
        self._can_ignore = None
        self.folder_hooks.clear()

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """Without paths on the command line nothing but cases is collected, and the tests that evalkit_paths names.

        Where none can be ignored, pytest need not look for each case whether it is: a sixth of what collecting takes.
        """
        if is_case_name(collection_path.name) and os.fspath(collection_path).startswith(self._prefixes):
            return None if self._may_ignore() else False
        if self._argument_paths or collection_path.suffix != ".py":
            return None
        return None if collection_path in self._configuration.paths else True

    def _may_ignore(self) -> bool:
        if self._can_ignore is None:
            manager = self._config.pluginmanager
            plugins = {impl.plugin_name for impl in manager.hook.pytest_ignore_collect.get_hookimpls()}
            self._can_ignore = (
                not plugins <= {"main", "evalkit-collection"}  # pytest itself is called "main"
                or any(self._config.getoption(name, None) for name in ("ignore", "ignore_glob"))
                or any(hasattr(plugin, name) for plugin in manager.get_plugins() for name in _IGNORE_NAMES)
            )
        return self._can_ignore

    def pytest_collect_file(self, file_path: Path, parent: pytest.Collector) -> CaseFile | None:
        problem = self._find_problem(file_path)
        return None if problem is False else CaseFile.from_parent(parent, path=file_path, hooks=self, problem=problem)

    def _find_problem(self, file: Path) -> Problem | bool | None:
        """False for a file that is no case, None for a case, and what is wrong with the name of one that nearly is."""
        path = os.fspath(file)
        is_named = path in self._argument_paths
        if not is_named and not path.startswith(self._prefixes):
            return False
        if is_case_name(file.name):
            return None
        from evalkit.spec.discover import check_file, find_cases

        if is_named:
            return next(find_cases([path], self._configuration.root)).problem if _is_yaml(path) else False
        match = check_file(path, self._configuration.root)
        return False if match is None else match.problem

    def load(self, path: Path) -> Case:
        return load_case(path, root=self._configuration.root, settings=self._configuration.settings)

    def read_tags(self, item: CaseItem) -> tuple[str, ...]:
        """The tags of a case, without loading it if a glance at the file will do."""
        tags = self._tag_scan.read_tags(os.fspath(item.path))
        if tags is not None:
            return tags
        case = item.case
        if case is None or self._has_kept_case:
            item.release()  # what is wrong with it may be mended by then: a check may be registered later
        else:
            self._has_kept_case = True  # a run of one case loads it once
        return () if case is None else case.tags

    def mark(self, item: CaseItem, tags: tuple[str, ...]) -> None:
        """Tags as marks, registered first: --strict-markers holds for hand-written ones."""
        for tag in tags:
            if not re.fullmatch(MARK_PATTERN, tag):
                item.extra_keyword_matches.add(tag)
                continue
            if tag not in self._registered_marks:
                self._registered_marks.add(tag)
                self._config.addinivalue_line("markers", f"{tag}: a tag of evalkit cases")
            item.add_marker(tag)


class SkippedFileCounter:
    """Counts the cases of files that ``--lf`` passes over without collecting them, because none failed there."""

    def __init__(self, runner: CaseRunner) -> None:
        self._runner = runner

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        report = yield
        if isinstance(collector, CaseFile) and report.passed and not report.result:
            self._runner.collected_count += 1
        return report


def _is_yaml(path: str) -> bool:
    return path.lower().endswith((".yaml", ".yml"))


class CaseFile(pytest.File):
    """A case file; `problem` is what is wrong with its name."""

    def __init__(self, *, hooks: Collection, problem: Problem | None, **node: object) -> None:
        super().__init__(**node)  # type: ignore[arg-type]
        self._hooks = hooks
        self._problem = problem
        self._folder = intern(os.path.dirname(self.path))  # one text for all files of the folder

    @property
    def ihook(self) -> HookRelay:
        """The hooks that hold here: all but those of other folders' conftest files. pytest works that out for each
        phase of each item; once per folder takes 2.6 % off a case where several folders have a conftest file."""
        relays = self._hooks.folder_hooks
        if self._folder not in relays:
            relays[self._folder] = super().ihook
        return relays[self._folder]

    def collect(self) -> Iterator[CaseItem]:
        item: CaseItem = CaseItem.from_parent(self, name=self.path.name.partition(".")[0])
        if self._problem is None:
            self._hooks.mark(item, self._hooks.read_tags(item))
        yield item

    def load(self) -> LoadedCase:
        """The case; None for a broken file, with all that is wrong with it."""
        if self._problem is not None:
            return None, (self._problem,)
        try:
            return self._hooks.load(self.path), ()
        except SpecError as error:
            return None, error.problems
        except Exception as error:  # a defect of ours must not stop the other files from being run
            message = f"evalkit failed to load this file: {type(error).__name__}: {error}; please report it"
            return None, (Problem(Location(self.case_id), message),)

    @property
    def case_id(self) -> str:
        """The path from the project's root, the identity of the case everywhere."""
        return format_file_path(os.fspath(self.path), os.fspath(self.config.rootpath))


class CaseItem(pytest.Item):
    """One case, which is loaded when it is first asked for, and let go once it has run: of many, few are in memory."""

    def __init__(self, **node: object) -> None:
        super().__init__(**node)  # type: ignore[arg-type]
        assert isinstance(self.parent, CaseFile)
        self.case_id = self.parent.case_id
        self._loaded: LoadedCase | None = None
        self.verdict: Verdict | None = None
        self.is_reported = False
        self.seconds: float | None = None  # how long the case took, where it ran ahead of its turn
        self.output_sections: list[tuple[str, str]] = []  # what it printed and logged, where cases overlap

    @property
    def ihook(self) -> HookRelay:
        assert self.parent is not None
        return self.parent.ihook

    @property
    def case(self) -> Case | None:
        """None for a broken file; `problems` says why."""
        return self._load()[0]

    @property
    def problems(self) -> tuple[Problem, ...]:
        return self._load()[1]

    def _load(self) -> LoadedCase:
        if self._loaded is None:
            assert isinstance(self.parent, CaseFile)
            self._loaded = self.parent.load()
        return self._loaded

    def release(self) -> None:
        """Let go of the case: asked for once more, it is loaded once more."""
        self._loaded = None

    def setup(self) -> None:
        self.verdict, self.is_reported, self.seconds = None, False, None  # rerun plugins run an item again
        self.output_sections = []
        self.config.stash[RUNNER].set_up(self)

    def runtest(self) -> None:
        self.config.stash[RUNNER].run(self)

    def reportinfo(self) -> tuple[os.PathLike[str] | str, int | None, str]:
        return self.path, None, self.name

    @cached_property
    def location(self) -> tuple[str, int | None, str]:
        """As pytest works it out, which takes long for files that are seen once: the case's id is their path."""
        if os.path.isabs(self.case_id):
            return super().location
        return self.case_id.replace("/", os.sep), None, self.name


def get_case_id(item: pytest.Item) -> str | None:
    """The id of the case that an item is, or that an ordinary test runs; None for any other test."""
    return item.case_id if isinstance(item, CaseItem) else item.stash.get(MARKED_CASE_ID, None)
