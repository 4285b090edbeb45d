"""`mock_function_responses` read into a `MockSet`.

Directives are recognised at the root of a function's mock, in each `$sequence` element, in a `$match` rule beside
`when`, and under `$return` and `$default`. Below that a `$` is data, `{$literal: X}` excepted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from evalkit.errors import PathProblem, format_path
from evalkit.functions.jsondata import NotJsonError, to_json
from evalkit.functions.mockchecks import MockContext, MockPlace
from evalkit.functions.mocks import Answer, KeyPath, MockSet, StaticAnswer
from evalkit.functions.statics import must_compile
from evalkit.model.case import Declaration
from evalkit.operators.shown import format_value

if TYPE_CHECKING:
    from evalkit.functions.directives import DirectiveReader

PLACEHOLDER = StaticAnswer(None)  # stands where a problem was found, so that reading can go on and find the others

Include = Callable[[str], Any]
_NO_INPUT: Any = object()


def parse_mocks(
    data: Any,
    *,
    path: KeyPath = ("input", "mock_function_responses"),
    declarations: Mapping[str, Declaration] | None = None,
    include: Include | None = None,
    input: Any = _NO_INPUT,
    check_targets: bool = True,
) -> tuple[MockSet, list[PathProblem]]:
    """The mocks in `data`, and everything that is wrong with them; ``None`` and ``{}`` mock nothing.

    `declarations` (by name) give the `returns` schemas and argument names that mocks are held against. `include` gives
    the data of an `$include` (see `mock_files`) or raises an EvalkitError. With `input`, ``{{ input... }}`` is checked.
    `check_targets` imports what `$call` and `exception` name, to see that it is there.
    """
    if data is None:
        return MockSet(), []
    if not isinstance(data, Mapping):
        message = f"{format_path(path)} must map function names to answers; got {format_value(data)}"
        return MockSet(), [PathProblem(path, message)]
    has_input = input is not _NO_INPUT
    context = MockContext(
        declarations or {},
        tuple(map(str, data)),
        input if has_input else None,
        has_input,
        check_targets,
        locate=getattr(include, "locate", None),
    )
    reader = MockReader(context, include)
    answers: dict[str, Answer] = {}
    for name, value in data.items():
        if reader.check_name(name, path, answers):
            answers[name] = reader.read_answer(value, MockPlace((*path, name), name))
    return MockSet(answers), context.problems


class MockReader:
    """Reads the mocks of one case; what is wrong with them is gathered in `around`."""

    def __init__(self, context: MockContext, include: Include | None) -> None:
        self.context = context
        self.include = include

    def add_problem(self, place: MockPlace, message: str, *steps: str | int, at_key: bool = False) -> Answer:
        self.context.add_problem(place, message, *steps, at_key=at_key)
        return PLACEHOLDER

    def check_name(self, name: Any, path: KeyPath, answers: Mapping[str, Answer]) -> bool:
        """Whether `name` can name a function that has no mock yet, under an alias of it either."""
        if not isinstance(name, str) or not name:
            self.context.problems.append(PathProblem((*path, name), f"{name!r} is no function name", at_key=True))
            return False
        canonical = self.context.resolve_name(name)
        for mock_name in answers if self.context.has_aliases else ():
            if self.context.resolve_name(mock_name) == canonical:
                message = f"'{name}' and '{mock_name}' are one function, '{canonical}'; mock it once"
                self.context.problems.append(PathProblem((*path, name), message, at_key=True))
                return False
        return True

    @cached_property
    def _directive_reader(self) -> DirectiveReader:
        """Imported for the first mock that has one: most are plain JSON."""
        from evalkit.functions.directives import DirectiveReader

        return DirectiveReader(self)

    def read_answer(self, value: Any, place: MockPlace) -> Answer:
        """What stands at a directive position: a directive, or JSON."""
        if type(value) is dict or isinstance(value, Mapping):
            for key in value:
                if isinstance(key, str) and key.startswith("$"):
                    return self._directive_reader.read(value, place)
        return self.read_static(value, place)

    def read_static(self, value: Any, place: MockPlace, *, literal: bool = False) -> Answer:
        try:
            data = to_json(value)
        except NotJsonError as error:
            return self.add_problem(place, f"a mock must be JSON: {error}")
        if literal or not must_compile(data):
            self.context.check_returns(data, place)
            return StaticAnswer(data, False, place.path, place.source)
        static = self.context.compile_answer(data, place)
        self.context.check_references(static, place)
        if not static.has_templates:
            self.context.check_returns(static.value, place)
        return StaticAnswer(static.value, static.has_templates, place.path, place.source)
