"""`mock_function_responses` read into a `MockSet`.

Directives are recognised at the root of a function's mock, in each `$sequence` element, in a `$match` rule beside
`when`, and under `$return` and `$default`. Below that a `$` is data, `{$literal: X}` excepted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from evalkit.errors import PathProblem, shown_path
from evalkit.functions.jsondata import NotJsonError, as_json
from evalkit.functions.mockchecks import Place, Surroundings
from evalkit.functions.mocks import Answer, MockSet, Path, Static
from evalkit.functions.statics import needs_compiling
from evalkit.model.case import Declaration
from evalkit.operators.shown import shown

if TYPE_CHECKING:
    from evalkit.functions.directives import Directives

NOTHING = Static(None)  # stands where a problem was found, so that reading can go on and find the others

Include = Callable[[str], Any]
_UNKNOWN: Any = object()


def parse_mocks(
    data: Any,
    *,
    path: Path = ("input", "mock_function_responses"),
    declarations: Mapping[str, Declaration] | None = None,
    include: Include | None = None,
    input: Any = _UNKNOWN,
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
        message = f"{shown_path(path)} must map function names to answers; got {shown(data)}"
        return MockSet(), [PathProblem(path, message)]
    has_input = input is not _UNKNOWN
    around = Surroundings(
        declarations or {},
        tuple(map(str, data)),
        input if has_input else None,
        has_input,
        check_targets,
        locate=getattr(include, "locate", None),
    )
    reader = Reader(around, include)
    answers: dict[str, Answer] = {}
    for name, value in data.items():
        if reader.name_is_free(name, path, answers):
            answers[name] = reader.answer(value, Place((*path, name), name))
    return MockSet(answers), around.problems


class Reader:
    """Reads the mocks of one case; what is wrong with them is gathered in `around`."""

    def __init__(self, around: Surroundings, include: Include | None) -> None:
        self.around = around
        self.include = include

    def wrong(self, place: Place, message: str, *steps: str | int, at_key: bool = False) -> Answer:
        self.around.wrong(place, message, *steps, at_key=at_key)
        return NOTHING

    def name_is_free(self, name: Any, path: Path, answers: Mapping[str, Answer]) -> bool:
        """Whether `name` can name a function that has no mock yet, under an alias of it either."""
        if not isinstance(name, str) or not name:
            self.around.problems.append(PathProblem((*path, name), f"{name!r} is no function name", at_key=True))
            return False
        canonical = self.around.canonical(name)
        for other in answers if self.around.has_aliases else ():
            if self.around.canonical(other) == canonical:
                message = f"'{name}' and '{other}' are one function, '{canonical}'; mock it once"
                self.around.problems.append(PathProblem((*path, name), message, at_key=True))
                return False
        return True

    @cached_property
    def _directives(self) -> Directives:
        """Imported for the first mock that has one: most are plain JSON."""
        from evalkit.functions.directives import Directives

        return Directives(self)

    def answer(self, value: Any, place: Place) -> Answer:
        """What stands at a directive position: a directive, or JSON."""
        if type(value) is dict or isinstance(value, Mapping):
            for key in value:
                if isinstance(key, str) and key.startswith("$"):
                    return self._directives.read(value, place)
        return self.static(value, place)

    def static(self, value: Any, place: Place, *, literal: bool = False) -> Answer:
        try:
            plain = as_json(value)
        except NotJsonError as error:
            return self.wrong(place, f"a mock must be JSON: {error}")
        if literal or not needs_compiling(plain):
            self.around.check_returns(plain, place)
            return Static(plain, False, place.path, place.source)
        static = self.around.compiled(plain, place)
        self.around.check_references(static, place)
        if not static.templated:
            self.around.check_returns(static.value, place)
        return Static(static.value, static.templated, place.path, place.source)
