"""What mocks are held against while they are read: names, arguments, the input, `returns` schemas."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from evalkit.errors import PathProblem, did_you_mean, format_path
from evalkit.functions.mocks import KeyPath, StaticAnswer
from evalkit.functions.schemas import compile_schema
from evalkit.functions.statics import compile_static, find_references
from evalkit.functions.violations import describe_violation, find_argument_names
from evalkit.model.case import Declaration
from evalkit.model.template import Reference, TemplateError, follow_path
from evalkit.operators.shown import format_value

CALL_PARTS = ("result", "arguments")


class MockPlace(Struct, frozen=True):
    """Where in the case the reader is: `path`, and the `name` of the mocked function.

    Inside an included file the path stays at the `$include`, and `inner` goes on from what the file's reference names.
    `changes` are the keys that the case lays over it.
    """

    path: KeyPath
    name: str
    including: tuple[str, ...] = ()
    inner: KeyPath = ()
    changes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def source(self) -> str:
        return self.including[-1] if self.including else ""

    def enter(self, *steps: str | int) -> MockPlace:
        if self.including:
            return replace(self, inner=(*self.inner, *steps))
        return replace(self, path=(*self.path, *steps))

    def enter_include(self, source: str, changes: Mapping[str, Any]) -> MockPlace:
        path = self.path if self.including else (*self.path, "$include")
        return replace(self, path=path, including=(*self.including, source), inner=(), changes=changes)

    def find_overlay_path(self) -> KeyPath | None:
        """The path in the case of what the case itself has laid over an included answer; None for what it has not."""
        steps = self.inner[1:] if self.inner[:1] in (("$return",), ("$literal",)) else self.inner
        value: Any = self.changes
        for step in steps:
            if not isinstance(value, Mapping) or step not in value:
                return None
            value = value[step]
        return (*self.path[:-1], *steps) if steps and len(self.including) == 1 else None


class MockContext(Struct):
    """What is known beside the mocks, and the problems found so far."""

    declarations: Mapping[str, Declaration]
    mock_names: tuple[str, ...]
    input: Any
    has_input: bool
    check_targets: bool = True  # whether the Python objects that mocks name are imported to see that they are there
    locate: Callable[[str, KeyPath, bool], str] | None = None  # the line of what an `$include` names
    problems: list[PathProblem] = field(default_factory=list)
    _canonical_names: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._canonical_names = {alias: d.name for d in self.declarations.values() for alias in d.aliases}

    def add_problem(self, place: MockPlace, message: str, *steps: str | int, at_key: bool = False) -> None:
        place = place.enter(*steps)
        case_path = place.find_overlay_path() if place.including else place.path
        if case_path is not None:
            self.problems.append(PathProblem(case_path, message, at_key=at_key))
            return
        location = self.locate(place.source, place.inner, at_key) if self.locate is not None else f"'{place.source}'"
        self.problems.append(PathProblem(place.path, f"in {location}: {message}"))

    @property
    def has_aliases(self) -> bool:
        """Whether a function may be named in two ways."""
        return bool(self._canonical_names)

    def resolve_name(self, name: str) -> str:
        return self._canonical_names.get(name, name)

    def _find_declaration(self, name: str) -> Declaration | None:
        return self.declarations.get(self.resolve_name(name))

    def compile_when(self, when: Any, place: MockPlace) -> Any:
        """`when` compiled: partial over the arguments that it names, equal on their values; None if it is wrong."""
        from evalkit.operators.compile import OperatorProblems, compile_value

        if not isinstance(when, Mapping):
            self.add_problem(place, f"'when' maps argument names to values; got {format_value(when, 60)}")
            return None
        names = self._find_argument_names(place.name)
        for key in when:
            if names is not None and key not in names and not str(key).startswith("$"):
                self.add_problem(place, self._explain_unknown_argument(key, place.name, names), key, at_key=True)
        try:
            return compile_value(when, mode="partial", path=(*place.path, *place.inner))
        except OperatorProblems as error:
            base_path = (*place.path, *place.inner)
            for problem in error.problems:
                self.add_problem(place, problem.message, *problem.path[len(base_path) :], at_key=problem.at_key)
            return None

    def _find_argument_names(self, name: str) -> frozenset[str] | None:
        declaration = self._find_declaration(name)
        if declaration is None or declaration.parameters is None:
            return None
        return find_argument_names(declaration.parameters)

    def _explain_unknown_argument(self, name: Any, function: str, names: Iterable[str]) -> str:
        listed = sorted(names)
        hint = f"known are {', '.join(listed)}" if listed else "it takes none"
        return f"{function} has no argument '{name}' ({hint}){did_you_mean(name, listed)}"

    def compile_answer(self, value: Any, place: MockPlace) -> StaticAnswer:
        """`compile_static`, with the problems at `place`."""
        problems: list[PathProblem] = []
        static = compile_static(value, (), problems)
        for problem in problems:
            self.add_problem(place, problem.message, *problem.path, at_key=problem.at_key)
        return static

    def check_references(self, static: StaticAnswer, place: MockPlace) -> None:
        """The templates of one answer, as far as they can be followed before the run."""
        if static.has_templates:
            for steps, reference in find_references(static.value):
                message = self._explain_broken_reference(reference, place.name)
                if message:
                    self.add_problem(place, message, *steps)

    def _explain_broken_reference(self, reference: Reference, function: str) -> str | None:
        first = reference.path[0] if reference.path else None
        if reference.root == "input" and self.has_input:
            try:
                follow_path(self.input, reference.path, reference.text)
            except TemplateError as error:
                return str(error)
        if reference.root == "arguments" and first is not None:
            names = self._find_argument_names(function)
            if names is not None and first not in names:
                return f"template {reference.text}: {self._explain_unknown_argument(first, function, names)}"
        if reference.root == "calls":
            return self._explain_broken_call(reference, first)
        return None

    def _explain_broken_call(self, reference: Reference, name: str | int | None) -> str | None:
        steps = reference.path[1:]
        part = next((step for step in steps if isinstance(step, str)), None)
        if not isinstance(name, str):
            return f"template {reference.text} names no function; write {{{{ calls.create_ticket.result.ticket_id }}}}"
        if steps[:1] == (0,):
            return f"template {reference.text} counts calls from 0; the first is [1], as in the trace"
        if part not in CALL_PARTS or steps.index(part) > 1:
            hint = did_you_mean(part, CALL_PARTS)
            return f"template {reference.text} must go on with .result or .arguments after the function{hint}"
        names = {self.resolve_name(function) for function in (*self.mock_names, *self.declarations)}
        if self.resolve_name(name) in names:
            return None
        return f"template {reference.text}: no function '{name}' is mocked{did_you_mean(name, names)}"

    def check_returns(self, value: Any, place: MockPlace) -> None:
        """A mock must be something that the function could return."""
        declaration = self._find_declaration(place.name)
        if declaration is not None and declaration.returns is not None:
            for path, message in find_return_problems(value, declaration.returns):
                self.add_problem(place, explain_broken_returns(declaration.name, path, message), *path)


def find_return_problems(value: Any, returns: Mapping[str, Any]) -> list[tuple[KeyPath, str]]:
    """Where and how `value` breaks a `returns` schema."""
    return [
        (tuple(error.absolute_path), describe_violation(error)) for error in compile_schema(returns).find_errors(value)
    ]


def explain_broken_returns(name: str, path: KeyPath, message: str) -> str:
    """One `return_problems` entry as a sentence."""
    at = f" at {format_path(path)}" if path else ""
    return f"the mock breaks the 'returns' schema of {name}{at}: {message}"
