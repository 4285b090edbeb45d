"""Dataclasses that are cheap to define: `@record` is `@dataclass`, with everything made when it is first used.

The standard decorator looks through the fields of each class, and writes and compiles up to eight functions for it:
0.4 ms. This one takes 0.03 ms. evalkit has some two hundred small records, and one case needs a fraction of them:
most of what it took to start was preparing classes that nobody then used. The first few instances of a class are
filled by hand, and `__init__` is compiled for a class that has more; the other methods are shared by all records. The
fields, for `fields()`, `replace()` and patterns, are the standard library's own, asked for when they are first looked
at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass
from functools import cache, partial
from inspect import Signature, signature
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

__all__ = ["attributes_of", "is_record", "record"]

_KW_ONLY = ("KW_ONLY", "dataclasses.KW_ONLY")  # the marker after which fields are keywords
_NO_FIELDS = ("ClassVar", "typing.ClassVar", *_KW_ONLY)  # what annotations of other things than fields begin with
_FILLED_BY_HAND = 50  # instances of a class, before it gets a compiled `__init__`


class Attribute:
    """One field, as far as the methods need to know it. (Neither a record nor a NamedTuple, which takes 0.1 ms.)"""

    __slots__ = ("default", "factory", "hint", "is_compared", "is_shown", "kw_only", "name")

    def __init__(self, name: str, hint: str, said: Any, kw_only: bool) -> None:
        self.name, self.hint, self.kw_only = name, hint, kw_only
        self.default: Any = said
        self.factory: Any = MISSING
        self.is_shown = self.is_compared = True
        if isinstance(said, Field):
            self.default, self.factory = said.default, said.default_factory
            self.is_shown, self.is_compared = said.repr, bool(said.compare)
            if said.kw_only is not MISSING:
                self.kw_only = bool(said.kw_only)


def _record(*, frozen: bool = False, slots: bool, kw_only: bool = False, eq: bool = True) -> Callable[[type], type]:
    """As `dataclasses.dataclass` with these options; methods that the class writes itself are kept. There are slots
    always and no `order`, and fields have no `InitVar` and no ``field(init=False)``. Annotations are strings: the
    module says ``from __future__ import annotations``."""
    assert slots, "a record has slots"

    def recorded(cls: type) -> type:
        own = dict(cls.__dict__)
        if own.get("__hash__", MISSING) is None and "__eq__" in own:
            del own["__hash__"]  # not written: Python sets it for a class that has an __eq__
        hints: dict[str, str] = own.get("__annotations__", {})
        names = [name for name, hint in hints.items() if not hint.startswith(_NO_FIELDS)]
        blueprint = _Blueprint({name: own.pop(name) for name in names if name in own}, kw_only)
        inherited = {name for base in cls.__mro__[1:] for name in base.__dict__.get("__slots__", ())}
        for of_an_open_class in ("__dict__", "__weakref__"):
            own.pop(of_an_open_class, None)
        space = {"__init__": blueprint, **_METHODS[frozen, eq], **own, "__record__": blueprint}
        space["__slots__"] = tuple(name for name in names if name not in inherited)
        space["__qualname__"] = cls.__qualname__
        return type(cls)(cls.__name__, cls.__bases__, space)

    return recorded


if TYPE_CHECKING:  # type checkers know the standard one
    from dataclasses import dataclass as record
else:
    record = _record


class _Blueprint:
    """What a class was written with. It stands in for `__init__` until a few instances are made, which it fills itself.

    Compiling one takes as long as filling fifty instances, and a run of a few cases has no more of most classes.
    """

    __slots__ = ("_cls", "_factories", "_filled", "_names", "_places", "_unsaid", "defaults", "kw_only")

    def __init__(self, defaults: dict[str, Any], kw_only: bool) -> None:
        self.defaults = defaults
        self.kw_only = kw_only
        self._filled = 0
        self._names: dict[str, None] = {}

    def __set_name__(self, cls: Any, name: str) -> None:
        self._cls = cls

    def __get__(self, instance: object, owner: Any) -> Any:
        if instance is not None and self._filled < _FILLED_BY_HAND:
            self._filled += 1
            return partial(self._fill, instance)
        return self._init().__get__(instance, owner)

    def attributes(self) -> Iterator[Attribute]:
        """Those that the class itself has, not those of its bases."""
        kw_only = self.kw_only
        for name, hint in self._cls.__annotations__.items():
            if hint.startswith(_KW_ONLY):
                kw_only = True
            elif not hint.startswith(_NO_FIELDS):
                yield Attribute(name, hint, self.defaults.get(name, MISSING), kw_only)

    def _init(self) -> Callable[..., None]:
        cls = self._cls
        if cls.__dict__["__init__"] is self:
            cls.__init__ = _compiled(cls)
        init: Callable[..., None] = cls.__dict__["__init__"]
        return init

    def _prepare(self) -> None:
        """What filling an instance takes. None of it is anything that the garbage collector has to go through."""
        attributes = attributes_of(self._cls)
        self._places = tuple(one.name for one in attributes if not one.kw_only)
        self._factories = {one.name: one.factory for one in attributes if one.factory is not MISSING} or None
        defaults = {one.name: one.default for one in attributes if one.default is not MISSING}
        self._unsaid = {**defaults, **dict.fromkeys(self._factories or (), _FACTORY)}
        self._names = {one.name: None for one in attributes}  # last: another thread may be filling one, too

    def _fill(self, instance: Any, /, *args: Any, **given: Any) -> None:
        if not self._names:
            self._prepare()
        said = {**dict(zip(self._places, args, strict=False)), **given}
        values = {**self._unsaid, **said}
        if len(said) < len(args) + len(given) or values.keys() != self._names.keys():
            self._init()(instance, *args, **given)  # which says what is wrong
            return
        for name, factory in (self._factories or {}).items():
            if values[name] is _FACTORY:
                values[name] = factory()
        put = object.__setattr__ if self._cls.__setattr__ is _refuse else setattr
        for name, value in values.items():
            put(instance, name, value)
        if hasattr(instance, "__post_init__"):
            instance.__post_init__()


def is_record(cls: type) -> bool:
    """As `is_dataclass`, of which it is no part, and without making what that looks at."""
    return any("__record__" in base.__dict__ for base in cls.__mro__)


def attributes_of(cls: type) -> tuple[Attribute, ...]:
    """The fields of a record and its bases, in the order of the parameters; cheaper than `dataclasses.fields`."""
    kept = [base.__dict__["__record__"] for base in reversed(cls.__mro__) if "__record__" in base.__dict__]
    return tuple({one.name: one for blueprint in kept for one in blueprint.attributes()}.values())


class _Fields:
    """Stands in for what the standard library keeps of a dataclass, until somebody looks at it."""

    def __get__(self, instance: object, owner: Any) -> Any:
        cls = next(base for base in owner.__mro__ if "__record__" in base.__dict__)
        blueprint = cls.__dict__["__record__"]
        space = {"__annotations__": cls.__annotations__, "__module__": cls.__module__, **blueprint.defaults}
        twin: Any = type(cls.__name__, cls.__bases__, {**space, "__doc__": "said, so that `dataclass` writes none"})
        twin = dataclass(init=False, repr=False, eq=False, kw_only=blueprint.kw_only)(twin)
        cls.__dataclass_params__ = twin.__dataclass_params__
        cls.__dataclass_fields__ = found = twin.__dataclass_fields__
        return found


class _MatchArgs:
    """What ``case Point(x, y)`` takes the values from."""

    def __get__(self, instance: object, cls: Any) -> tuple[str, ...]:
        return tuple(one.name for one in attributes_of(cls) if not one.kw_only)


class _Signature:
    """What `inspect.signature` and `help` show of the class."""

    def __get__(self, instance: object, cls: Any) -> Signature:
        if instance is not None:
            raise AttributeError("__signature__")
        whole = signature(cls.__init__)
        return whole.replace(parameters=list(whole.parameters.values())[1:])


class _Factory:
    __slots__ = ()

    def __repr__(self) -> str:
        return "<factory>"


_FACTORY = _Factory()  # the default of a field that has a default_factory


def _compiled(cls: Any) -> Callable[..., None]:
    attributes = attributes_of(cls)
    names: dict[str, Any] = {"_factory": _FACTORY}
    body = [_assignment(cls, one, names) for one in attributes]
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    positional = [_parameter(one, names) for one in attributes if not one.kw_only]
    named = [_parameter(one, names) for one in attributes if one.kw_only]
    parameters = ", ".join(["self", *positional, *(["*", *named] if named else [])])
    lines = "\n    ".join([f"def __init__({parameters}):", *(body or ["pass"])])
    exec(compile(lines, f"<record {cls.__qualname__}>", "exec"), names)  # noqa: S102  # from names of fields alone
    init = names["__init__"]
    init.__qualname__, init.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
    init.__annotations__ = {one.name: one.hint for one in attributes} | {"return": None}
    return init  # type: ignore[no-any-return]


def _parameter(one: Attribute, names: dict[str, Any]) -> str:
    if one.default is not MISSING:
        names[f"_default_{one.name}"] = one.default
        return f"{one.name}=_default_{one.name}"
    return one.name if one.factory is MISSING else f"{one.name}=_factory"


def _assignment(cls: Any, one: Attribute, names: dict[str, Any]) -> str:
    name = value = one.name
    if one.factory is not MISSING:
        names[f"_make_{name}"] = one.factory
        value = f"_make_{name}() if {name} is _factory else {name}"
    if cls.__setattr__ is not _refuse:
        return f"self.{name} = {value}"
    names[f"_set_{name}"] = getattr(cls, name).__set__  # half the time of object.__setattr__
    return f"_set_{name}(self, {value})"


@cache
def _values(cls: Any) -> Callable[[Any], Any]:
    """What makes two records of a class equal."""
    names = [one.name for one in attributes_of(cls) if one.is_compared]
    if len(names) > 1:
        return attrgetter(*names)
    return lambda record: tuple(getattr(record, name) for name in names)


def _equal(self: Any, other: Any) -> bool:
    if other.__class__ is not self.__class__:
        return NotImplemented  # type: ignore[no-any-return]
    values = _values(self.__class__)
    same: bool = values(self) == values(other)
    return same


def _hashed(self: Any) -> int:
    return hash(_values(self.__class__)(self))


@recursive_repr("...")
def _shown(self: Any) -> str:
    inner = ", ".join(
        f"{one.name}={getattr(self, one.name)!r}" for one in attributes_of(self.__class__) if one.is_shown
    )
    return f"{self.__class__.__qualname__}({inner})"


def _refuse(self: object, name: str, value: object = None) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


@cache
def _names(cls: Any) -> tuple[str, ...]:
    return tuple(one.name for one in attributes_of(cls))


def _state(self: Any) -> list[Any]:
    return [getattr(self, name) for name in _names(self.__class__)]


def _set_state(self: Any, state: list[Any]) -> None:
    for name, value in zip(_names(self.__class__), state, strict=True):
        object.__setattr__(self, name, value)


_ALL: dict[str, Any] = {
    "__repr__": _shown,
    "__signature__": _Signature(),
    "__match_args__": _MatchArgs(),
    "__dataclass_fields__": _Fields(),
}
_FROZEN: dict[str, Any] = {
    "__setattr__": _refuse,
    "__delattr__": _refuse,
    "__getstate__": _state,  # the usual ones would set attributes
    "__setstate__": _set_state,
}
_METHODS: dict[tuple[bool, bool], dict[str, Any]] = {  # for those that are frozen, and those that are compared
    (False, False): _ALL,
    (False, True): {**_ALL, "__eq__": _equal, "__hash__": None},
    (True, False): {**_ALL, **_FROZEN},
    (True, True): {**_ALL, **_FROZEN, "__eq__": _equal, "__hash__": _hashed},
}
