"""What mocks are held against while they are read: names, arguments, the input, `returns` schemas."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from evalkit.errors import PathProblem, did_you_mean, shown_path
from evalkit.functions.mocks import Path, Static
from evalkit.functions.schemas import compiled
from evalkit.functions.statics import compile_static, references
from evalkit.functions.violations import argument_names, violation_text
from evalkit.model.case import Declaration
from evalkit.model.template import Reference, TemplateError, walk
from evalkit.operators.shown import shown

CALL_PARTS = ("result", "arguments")


class Place(Struct, frozen=True):
    """Where in the case the reader is: `path`, and the `name` of the mocked function.

    Inside an included file the path stays at the `$include`, and `inner` goes on from what the file's reference names.
    `changes` are the keys that the case lays over it.
    """

    path: Path
    name: str
    including: tuple[str, ...] = ()
    inner: Path = ()
    changes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def source(self) -> str:
        return self.including[-1] if self.including else ""

    def down(self, *steps: str | int) -> Place:
        if self.including:
            return replace(self, inner=(*self.inner, *steps))
        return replace(self, path=(*self.path, *steps))

    def into(self, source: str, changes: Mapping[str, Any]) -> Place:
        path = self.path if self.including else (*self.path, "$include")
        return replace(self, path=path, including=(*self.including, source), inner=(), changes=changes)

    def changed(self) -> Path | None:
        """The path in the case of what the case itself has laid over an included answer; None for what it has not."""
        steps = self.inner[1:] if self.inner[:1] in (("$return",), ("$literal",)) else self.inner
        value: Any = self.changes
        for step in steps:
            if not isinstance(value, Mapping) or step not in value:
                return None
            value = value[step]
        return (*self.path[:-1], *steps) if steps and len(self.including) == 1 else None


class Surroundings(Struct):
    """What is known beside the mocks, and the problems found so far."""

    declarations: Mapping[str, Declaration]
    mocked: tuple[str, ...]
    input: Any
    has_input: bool
    check_targets: bool = True  # whether the Python objects that mocks name are imported to see that they are there
    locate: Callable[[str, Path, bool], str] | None = None  # the line of what an `$include` names
    problems: list[PathProblem] = field(default_factory=list)
    _canonical: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._canonical = {alias: d.name for d in self.declarations.values() for alias in d.aliases}

    def wrong(self, place: Place, message: str, *steps: str | int, at_key: bool = False) -> None:
        place = place.down(*steps)
        own = place.changed() if place.including else place.path
        if own is not None:
            self.problems.append(PathProblem(own, message, at_key=at_key))
            return
        at = self.locate(place.source, place.inner, at_key) if self.locate is not None else f"'{place.source}'"
        self.problems.append(PathProblem(place.path, f"in {at}: {message}"))

    @property
    def has_aliases(self) -> bool:
        """Whether a function may be named in two ways."""
        return bool(self._canonical)

    def canonical(self, name: str) -> str:
        return self._canonical.get(name, name)

    def _declaration(self, name: str) -> Declaration | None:
        return self.declarations.get(self.canonical(name))

    def matcher(self, when: Any, place: Place) -> Any:
        """`when` compiled: partial over the arguments that it names, equal on their values; None if it is wrong."""
        from evalkit.operators.compile import OperatorProblems, compile_value

        if not isinstance(when, Mapping):
            self.wrong(place, f"'when' maps argument names to values; got {shown(when, 60)}")
            return None
        names = self._argument_names(place.name)
        for key in when:
            if names is not None and key not in names and not str(key).startswith("$"):
                self.wrong(place, self._no_argument(key, place.name, names), key, at_key=True)
        try:
            return compile_value(when, mode="partial", path=(*place.path, *place.inner))
        except OperatorProblems as error:
            inside = (*place.path, *place.inner)
            for problem in error.problems:
                self.wrong(place, problem.message, *problem.path[len(inside) :], at_key=problem.at_key)
            return None

    def _argument_names(self, name: str) -> frozenset[str] | None:
        declaration = self._declaration(name)
        if declaration is None or declaration.parameters is None:
            return None
        return argument_names(declaration.parameters)

    def _no_argument(self, name: Any, function: str, names: Iterable[str]) -> str:
        listed = sorted(names)
        known = f"known are {', '.join(listed)}" if listed else "it takes none"
        return f"{function} has no argument '{name}' ({known}){did_you_mean(name, listed)}"

    def compiled(self, value: Any, place: Place) -> Static:
        """`compile_static`, with the problems at `place`."""
        found: list[PathProblem] = []
        static = compile_static(value, (), found)
        for problem in found:
            self.wrong(place, problem.message, *problem.path, at_key=problem.at_key)
        return static

    def check_references(self, static: Static, place: Place) -> None:
        """The templates of one answer, as far as they can be followed before the run."""
        if static.templated:
            for steps, reference in references(static.value):
                message = self._broken(reference, place.name)
                if message:
                    self.wrong(place, message, *steps)

    def _broken(self, reference: Reference, function: str) -> str | None:
        first = reference.path[0] if reference.path else None
        if reference.root == "input" and self.has_input:
            try:
                walk(self.input, reference.path, reference.text)
            except TemplateError as error:
                return str(error)
        if reference.root == "arguments" and first is not None:
            names = self._argument_names(function)
            if names is not None and first not in names:
                return f"template {reference.text}: {self._no_argument(first, function, names)}"
        if reference.root == "calls":
            return self._broken_call(reference, first)
        return None

    def _broken_call(self, reference: Reference, name: str | int | None) -> str | None:
        steps = reference.path[1:]
        part = next((step for step in steps if isinstance(step, str)), None)
        if not isinstance(name, str):
            return f"template {reference.text} names no function; write {{{{ calls.create_ticket.result.ticket_id }}}}"
        if steps[:1] == (0,):
            return f"template {reference.text} counts calls from 0; the first is [1], as in the trace"
        if part not in CALL_PARTS or steps.index(part) > 1:
            near = did_you_mean(part, CALL_PARTS)
            return f"template {reference.text} must go on with .result or .arguments after the function{near}"
        known = {self.canonical(other) for other in (*self.mocked, *self.declarations)}
        if self.canonical(name) in known:
            return None
        return f"template {reference.text}: no function '{name}' is mocked{did_you_mean(name, known)}"

    def check_returns(self, value: Any, place: Place) -> None:
        """A mock must be something that the function could return."""
        declaration = self._declaration(place.name)
        if declaration is not None and declaration.returns is not None:
            for path, message in return_problems(value, declaration.returns):
                self.wrong(place, broken_returns(declaration.name, path, message), *path)


def return_problems(value: Any, returns: Mapping[str, Any]) -> list[tuple[Path, str]]:
    """Where and how `value` breaks a `returns` schema."""
    return [(tuple(error.absolute_path), violation_text(error)) for error in compiled(returns).errors(value)]


def broken_returns(name: str, path: Path, message: str) -> str:
    """One `return_problems` entry as a sentence."""
    at = f" at {shown_path(path)}" if path else ""
    return f"the mock breaks the 'returns' schema of {name}{at}: {message}"
