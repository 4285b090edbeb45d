"""`@record` is `@dataclass`, held against the standard one: only defining a class is cheaper."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable
from dataclasses import KW_ONLY, FrozenInstanceError, field
from typing import Any, ClassVar

import pytest

from evalkit.record import attributes_of, is_record, record

Decorator = Callable[..., Callable[[type], Any]]


def classes(decorator: Any) -> dict[str, Any]:
    """The same classes, made by either decorator."""

    @decorator(frozen=True, slots=True)
    class Point:
        """A place."""

        x: int
        y: int = 0
        _: KW_ONLY
        names: list[str] = field(default_factory=list)

    @decorator(frozen=True, slots=True)
    class Place(Point):
        z: str = "here"

    @decorator(slots=True)
    class Box:
        content: Any = None

        def __post_init__(self) -> None:
            self.content = (self.content,)

    @decorator(frozen=True, slots=True)
    class Nearer(Place):
        y: int = 9

    @decorator(slots=True)
    class Doubled(Box):
        more: int = 0

        def __init__(self, content: int) -> None:
            Box.__init__(self, 2 * content)  # type: ignore[call-arg]
            self.more = content

    @decorator(frozen=True, slots=True, kw_only=True)
    class Named:
        kinds: ClassVar[tuple[str, ...]] = ("a",)
        name: str
        hidden: int = field(default=0, compare=False, repr=False)

        def __repr__(self) -> str:
            return f"<{self.name}>"

    @decorator(frozen=True, slots=True, eq=False)
    class Itself:
        value: int

    @decorator(frozen=True, slots=True)
    class Own:
        value: Any

        def __eq__(self, other: object) -> bool:
            return isinstance(other, type(self))

        def __hash__(self) -> int:
            return 7

    @decorator(frozen=True, slots=True)
    class Empty:
        pass

    found = (Point, Place, Nearer, Box, Doubled, Named, Itself, Own, Empty)
    return {cls.__name__: cls for cls in found}


USUAL: dict[str, Any] = classes(dataclasses.dataclass)
OURS: dict[str, Any] = classes(record)
WORN: dict[str, Any] = {name: cls for name, cls in classes(record).items() if cls.__init__}  # asked for: compiled
EITHER = pytest.mark.parametrize("classes", [USUAL, OURS], ids=["dataclass", "record"])

TRIALS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "repr": lambda c: repr(c["Point"](1, names=["a"])),
    "repr of a subclass": lambda c: repr(c["Place"](1, 2, "there")),
    "its own repr": lambda c: repr(c["Named"](name="a")),
    "repr of itself inside": lambda c: repr(_knotted(c["Box"]())),
    "equal": lambda c: c["Point"](1) == c["Point"](1, 0, names=[]),
    "unequal": lambda c: c["Point"](1) == c["Point"](2),
    "of another class": lambda c: c["Point"](1) == c["Place"](1),
    "not compared": lambda c: c["Named"](name="a", hidden=1) == c["Named"](name="a", hidden=2),
    "by identity": lambda c: c["Itself"](1) == c["Itself"](1),
    "its own equality": lambda c: c["Own"](1) == c["Own"](2),
    "the same NaN": lambda c: (lambda nan: c["Box"](nan) == c["Box"](nan))(float("nan")),
    "empty ones": lambda c: c["Empty"]() == c["Empty"](),
    "its own hash": lambda c: hash(c["Own"](1)),
    "hash of equals": lambda c: hash(c["Named"](name="a")) == hash(c["Named"](name="a", hidden=3)),
    "hash of what can change": lambda c: hash(c["Box"]()),
    "hash of what can't be hashed": lambda c: hash(c["Point"](1)),
    "a factory": lambda c: c["Point"](1).names is c["Point"](1).names,
    "after the init": lambda c: c["Box"](3).content,
    "too few": lambda c: c["Point"](),
    "too many": lambda c: c["Point"](1, 2, 3),
    "unknown": lambda c: c["Point"](1, w=2),
    "setting": lambda c: setattr(c["Point"](1), "x", 2),
    "setting what may change": lambda c: setattr(c["Box"](1), "content", 2),
    "a dict": lambda c: hasattr(c["Point"](1), "__dict__"),
    "replace": lambda c: repr(dataclasses.replace(c["Point"](1, names=["a"]), y=5)),
    "fields": lambda c: [(f.name, f.type, f.kw_only) for f in dataclasses.fields(c["Place"])],
    "asdict": lambda c: dataclasses.asdict(c["Place"](1)),
    "a pattern": lambda c: c["Place"].__match_args__,
    "no keyword in a pattern": lambda c: c["Named"].__match_args__,
    "a class variable": lambda c: (c["Named"].kinds, [f.name for f in dataclasses.fields(c["Named"])]),
    "a default of a subclass": lambda c: repr(c["Nearer"](3)),
    "a subclass with an init of its own": lambda c: repr(c["Doubled"](3)),
    "is a dataclass": lambda c: (dataclasses.is_dataclass(c["Point"]), dataclasses.is_dataclass(c["Point"](1))),
    "a default on the class": lambda c: isinstance(c["Point"].y, int),
    "copy": lambda c: repr(copy.deepcopy(c["Point"](1, names=["a"]))),
    "signature": lambda c: str(inspect.signature(c["Point"])),
    "documentation": lambda c: c["Point"].__doc__,
}


def _knotted(box: Any) -> Any:
    box.content = [box]
    return box


def told(trial: Callable[[dict[str, Any]], Any], found: dict[str, Any]) -> Any:
    try:
        return trial(found)
    except Exception as error:
        return type(error), str(error)


@pytest.mark.parametrize("trial", TRIALS.values(), ids=TRIALS)
def test_a_record_does_what_a_dataclass_does(trial: Callable[[dict[str, Any]], Any]) -> None:
    assert told(trial, classes(record)) == told(trial, USUAL)  # instances that are filled by hand
    assert told(trial, WORN) == told(trial, USUAL)


@pytest.mark.parametrize("arguments", [(), (1,), (1, 2), (1, 2, 3)])
@pytest.mark.parametrize("named", [{}, {"y": 5}, {"names": ["a"]}, {"x": 1}, {"z": 0}, {"x": 1, "y": 2, "names": []}])
def test_first_instances_are_filled_as_later_ones(arguments: tuple[int, ...], named: dict[str, Any]) -> None:
    def made(classes: dict[str, Any]) -> str:
        return repr(classes["Point"](*arguments, **named))

    assert told(made, classes(record)) == told(made, WORN) == told(made, USUAL)


def test_an_init_is_compiled_for_a_class_with_more_than_a_few_instances() -> None:
    @record(frozen=True, slots=True)
    class Many:
        value: int
        others: list[int] = field(default_factory=list)

    made = [Many(7)]
    assert not inspect.isfunction(vars(Many)["__init__"])
    made += [Many(7) for _ in range(100)]
    assert inspect.isfunction(vars(Many)["__init__"])
    assert made == [Many(7)] * 101
    assert len({id(one.others) for one in made}) == 101


@record(frozen=True, slots=True)
class Travelling:
    """Its state goes through pickle, though no attribute may be set."""

    left: int
    right: Any = None


def test_a_record_goes_through_pickle() -> None:
    assert pickle.loads(pickle.dumps(Travelling(1, [2]))) == Travelling(1, [2])


@EITHER
def test_an_attribute_of_a_frozen_one_can_t_be_deleted(classes: dict[str, Any]) -> None:
    with pytest.raises(FrozenInstanceError):
        del classes["Point"](1).x


def test_the_signature_is_known_before_the_first_instance() -> None:
    @record(slots=True)
    class Fresh:
        first: int
        second: str = "b"

    assert str(inspect.signature(Fresh)) == "(first: 'int', second: 'str' = 'b') -> None"
    assert not hasattr(Fresh(1), "__signature__")


def test_nothing_is_made_for_a_class_that_nobody_uses() -> None:
    @record(frozen=True, slots=True)
    class Unused:
        value: int

    def written() -> list[str]:
        return [name for name, one in vars(Unused).items() if inspect.isfunction(one) and one.__name__ == "__init__"]

    assert written() == []
    assert not isinstance(vars(Unused)["__dataclass_fields__"], dict)
    Unused(1)
    assert written() == []
    Unused.__init__  # noqa: B018
    assert written() == ["__init__"]
    assert dataclasses.is_dataclass(Unused)
    assert isinstance(vars(Unused)["__dataclass_fields__"], dict)


@pytest.mark.parametrize("name", USUAL)
def test_its_fields_are_known_without_the_standard_library_s(name: str) -> None:
    found = attributes_of(OURS[name])
    assert [(one.name, one.hint, one.kw_only, one.is_shown, one.is_compared) for one in found] == [
        (one.name, one.type, one.kw_only, one.repr, one.compare) for one in dataclasses.fields(USUAL[name])
    ]
    assert is_record(OURS[name])
    assert not is_record(USUAL[name])
