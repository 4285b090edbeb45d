"""`load_case` and `case_from_dict`: files and suites merged, validated and compiled into a Case, or every problem."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from evalkit.errors import Location, PathProblem, Problem, SpecError, shown_path
from evalkit.model.case import Case, Declaration
from evalkit.model.settings import Settings
from evalkit.operators.shown import type_shown
from evalkit.spec.compiling import Parts, compile_case
from evalkit.spec.merging import MOCKS, merged, with_present_names
from evalkit.spec.naming import category_of, stem_problem
from evalkit.spec.project import importable, project_root
from evalkit.spec.source import EXTENDS, Extended, Layer, Source
from evalkit.spec.suites import Suite, shown_file, suites_of
from evalkit.yamlfile.builder import Read, read

if TYPE_CHECKING:
    from evalkit.functions.mocks import MockSet

_UNSHOWN = "[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]"
_DEFAULT_MOCKS = Settings().mocks


def load_case(path: str | Path, *, root: str | Path | None = None, settings: Settings | None = None) -> Case:
    """The case in the file at `path`, merged with the suite.yaml files from `root` down to it.

    `root` is the project's root, from which identities, mocks and suites count: by default `settings.root`, else the
    current directory if the file lies below it, else the folder around the file that looks like a project. Raises
    SpecError with every problem of the file and of what it inherits or includes, each with its place.
    """
    file = os.path.abspath(path)
    root = root or (settings.root if settings else None)
    base = project_root(file, root)
    content = _content(file, base)
    found = _read(content, file, base)
    loader = _Loader(base, file, settings, named=root is not None, uses_python=names_python(content))
    return loader.load(found.value, Layer(loader.id, file), found.problems)


def names_python(content: bytes) -> bool:
    """Whether a file with this content may name Python code, which is then imported when its case is loaded."""
    directives = b"$" in content and (b"$call" in content or b"$include" in content)
    return directives or b"patch" in content or b"exception" in content


class Examined(Struct, frozen=True):
    """A case file as far as it could be read: merged data, the declarations in it, and what is wrong with the file."""

    id: str
    data: dict[str, Any]
    source: Source
    functions: tuple[Declaration, ...]
    problems: tuple[Problem, ...]


def examine_case(path: str | Path, *, root: str | Path, mocks: Path = _DEFAULT_MOCKS) -> Examined:
    """What `load_case` reads, for tools that look at broken files too. No code that the case names is imported.

    Raises SpecError for a file that holds no mapping at all.
    """
    file = os.path.abspath(path)
    base = os.path.abspath(root)
    found = _read(_content(file, base), file, base)
    loader = _Loader(base, file, Settings(mocks=mocks), named=True, uses_python=False)
    return loader.examine(found.value, Layer(loader.id, file), found.problems, check_targets=False)[0]


def _content(file: str, root: str) -> bytes:
    try:
        with open(file, "rb", buffering=0) as opened:
            return opened.readall()
    except OSError as error:
        raise SpecError([Problem(Location(shown_file(file, root)), f"can't be read: {error.strerror}")]) from None


def _read(content: bytes, file: str, root: str) -> Read:
    found = read(content, shown_file(file, root))
    if found.problems and found.value is None:
        raise SpecError(found.problems)
    return found


def case_from_dict(data: Mapping[str, Any], path: str | Path | None = None, *, root: str | Path | None = None) -> Case:
    """The case that parsed data describes, under the same rules as a file's.

    With a `path`, which need not exist, its name must be a case's, and the suites around it are inherited.
    """
    from evalkit.spec.plaindata import plain

    file = None if path is None else os.path.abspath(path)
    base = project_root(file, root)
    loader = _Loader(base, file, None, named=root is not None, uses_python=True)
    value, problems = plain(data)
    name = loader.id or (value.get("scenario_id") if isinstance(value, dict) else None)
    layer = Layer(name if isinstance(name, str) and name else "case", data=value)
    return loader.load(value, layer, tuple(Problem(Location(layer.file), _with_path(p)) for p in problems))


def _with_path(problem: PathProblem) -> str:
    """The message with the place in words, for data that has no lines, unless it names the place itself."""
    path = problem.path
    named = (shown_path(part) for part in (path, path[1:], path[:-1], path[1:-1]))
    known = (
        not path or (problem.at_key and len(path) == 1) or any(place and place in problem.message for place in named)
    )
    return problem.message if known else f"{shown_path(path)}: {problem.message}"


class _Loader:
    """One load. `file` is absolute, or None for data without a file; `named`: the caller said what the root is."""

    def __init__(
        self, root: str, file: str | None, settings: Settings | None, *, named: bool, uses_python: bool
    ) -> None:
        self.root = root
        self.file = file
        self.id = "" if file is None else shown_file(file, root)
        self.stem = "" if file is None else os.path.basename(file).partition(".")[0]
        self.path = None if file is None else Path(self.id if named or root == os.getcwd() else file)
        self.mocks = _mocks_folder(root, settings.mocks if settings else _DEFAULT_MOCKS)
        self.uses_python = uses_python

    def load(self, data: Any, layer: Layer, found: tuple[Problem, ...]) -> Case:
        examined, parts, suite = self.examine(data, layer, found)
        if examined.problems:
            raise SpecError(examined.problems)
        return self._case(examined.data, parts, examined.source, suite)

    def examine(
        self, data: Any, layer: Layer, found: tuple[Problem, ...], *, check_targets: bool = True
    ) -> tuple[Examined, Parts, Suite]:
        if not isinstance(data, dict):
            what = "the file is empty" if data is None else f"a case is a mapping, not {type_shown(data)}"
            raise SpecError([*found, Problem(layer.find((), key=False) or Location(layer.file), what + _NEEDED)])
        suite = Suite() if self.file is None else suites_of(os.path.dirname(self.file), self.root)
        case = self._extended(data, layer)
        if check_targets and (self.uses_python or any(map(names_python, case.contents))):
            importable(self.root)
        whole = merged(suite.data, with_present_names(case.data))
        parts = compile_case(whole, stem=self.stem, mocks=self.mocks, check_targets=check_targets)
        if suite.layers or case.layers:
            parts.mocks = _with_shared(parts.mocks, data)
        source = Source((layer, *case.layers, *suite.layers))
        problems: Sequence[Problem] = (*self._named(), *found, *case.problems, *suite.problems)
        if problems or parts.problems:
            told = parts.problems
            if case.problems:  # what seems to be missing may stand in the case that could not be read
                told = tuple(problem for problem in told if problem.path not in ((), ("input",)))
            problems = _placed(problems, told, source)
        return Examined(self.id, whole, source, parts.functions, tuple(problems)), parts, suite

    def _extended(self, data: dict[str, Any], layer: Layer) -> Extended:
        if EXTENDS not in data:
            return Extended(data)
        from evalkit.spec.extending import extended

        return extended(data, layer, self.file, self.root)

    def _named(self) -> list[Problem]:
        message = None if self.file is None else stem_problem(os.path.basename(self.file)) or _twin(self.file)
        return [Problem(Location(self.id), message)] if message else []

    def _case(self, whole: dict[str, Any], parts: Parts, source: Source, suite: Suite) -> Case:
        values = parts.values
        name = values.get("scenario_id") or self.stem
        return Case(
            id=self.id or name or "case",
            path=self.path,
            scenario_id=name,
            description=values.get("description") or "",
            category=category_of(values.get("category"), self.stem or name),
            created=values.get("created"),
            tags=values.get("tags", ()),
            agent=values.get("agent"),
            must_pass=values.get("must_pass", False),
            skip=values.get("skip"),
            xfail=values.get("xfail"),
            until=values.get("until"),
            input=whole["input"],
            expected_output=whole.get("expected_output") or {},
            functions=parts.functions,
            settings=parts.settings,
            mocks=parts.mocks,
            expectation=parts.expectation,
            turns=parts.turns,
            merged=whole,
            suite_dirs=suite.folders,
            source=source,
            **({"repeat": values["repeat"]} if "repeat" in values else {}),
        )


def _twin(file: str) -> str | None:
    """Why a case ``a_001.yml`` beside ``a_001.yaml`` is none: both would have the same name and the same cassettes."""
    stem, ending = os.path.splitext(file)
    if ending != ".yml" or not os.path.exists(f"{stem}.yaml"):
        return None
    return f"{os.path.basename(stem)}.yaml stands beside this file: two cases of one name; give one another number"


def _with_shared(mocks: MockSet | None, data: dict[str, Any]) -> MockSet | None:
    """`mocks`, of which those that `data`, the case's own file, does not name are inherited."""
    given = with_present_names(data).get("input")
    own = given.get(MOCKS) if isinstance(given, dict) else None
    shared = frozenset(mocks or ()).difference(own if isinstance(own, dict) else ())
    return replace(mocks, shared=shared) if mocks is not None and shared else mocks


def _in_one_line(message: str) -> str:
    """`message` with line breaks, control characters and half surrogate pairs, from odd keys say, as escapes."""
    return re.sub(_UNSHOWN, lambda char: char[0].encode("unicode_escape").decode(), message)


@lru_cache(maxsize=16)
def _mocks_folder(root: str, mocks: Path) -> Path:
    return Path(root) / mocks


_NEEDED = "; it needs 'input' and 'expected_output'"


def _placed(known: Sequence[Problem], paths: tuple[PathProblem, ...], source: Source) -> list[Problem]:
    """All problems with their places, in the order of the files: the case's first. One per place and message."""
    taken = {problem.location for problem in known if problem.location.line}
    problems = list(known)
    for found in paths:
        location = source.locate(found.path, key=found.at_key)
        if location not in taken:  # what YAML's rules refused there is not refused again by ours
            message = found.message if location.line else _with_path(found)
            problems.append(Problem(location, _in_one_line(message), found.code))
    order = {layer.file: index for index, layer in enumerate(source.layers)}
    problems.sort(key=lambda it: (order.get(it.location.file, -1), it.location.line, it.location.column))
    return list(dict.fromkeys(problems))
