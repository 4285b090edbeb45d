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
from typing import TYPE_CHECKING, Any, NamedTuple

__all__ = ["record"]

_NO_FIELDS = ("ClassVar", "typing.ClassVar")  # what annotations of class variables begin with
_KW_ONLY = ("KW_ONLY", "dataclasses.KW_ONLY")  # the marker after which fields are keywords
_FILLED_BY_HAND = 12  # instances of a class, before it gets a compiled `__init__`


class _Attribute(NamedTuple):
    """One field, as far as the methods need to know it."""

    name: str
    hint: str
    default: Any
    factory: Any
    kw_only: bool
    is_shown: bool = True
    is_compared: bool = True


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
        names = [name for name, hint in hints.items() if not hint.startswith((*_NO_FIELDS, *_KW_ONLY))]
        defaults = {name: own.pop(name) for name in names if name in own}
        methods: dict[str, Any] = {"__init__": _Init(), "__repr__": _shown, "__signature__": _SIGNATURE}
        if eq:
            methods |= {"__eq__": _equal, "__hash__": _hashed if frozen else None}
        if frozen:
            methods |= _FROZEN
        inherited = {name for base in cls.__mro__[1:] for name in base.__dict__.get("__slots__", ())}
        slotted = {
            "__slots__": tuple(name for name in names if name not in inherited),
            "__qualname__": cls.__qualname__,
        }
        fields = _Fields(defaults, kw_only)
        lazy = {"__record__": fields, "__dataclass_fields__": fields, "__match_args__": _MATCH_ARGS}
        space = {**methods, **own, **slotted, **lazy}
        for of_an_open_class in ("__dict__", "__weakref__"):
            space.pop(of_an_open_class, None)
        return type(cls)(cls.__name__, cls.__bases__, space)

    return recorded


if TYPE_CHECKING:  # type checkers know the standard one
    from dataclasses import dataclass as record
else:
    record = _record


class _Fields:
    """Stands in for what the standard library keeps of a dataclass, until somebody looks at it."""

    __slots__ = ("_cls", "_defaults", "_kw_only")

    def __init__(self, defaults: dict[str, Any], kw_only: bool) -> None:
        self._defaults = defaults
        self._kw_only = kw_only

    def __set_name__(self, cls: Any, name: str) -> None:
        self._cls = cls

    def __get__(self, instance: object, owner: Any) -> Any:
        cls = self._cls
        space = {"__annotations__": cls.__annotations__, "__module__": cls.__module__, **self._defaults}
        twin: Any = type(cls.__name__, cls.__bases__, {**space, "__doc__": "said, so that `dataclass` writes none"})
        twin = dataclass(init=False, repr=False, eq=False, kw_only=self._kw_only)(twin)
        cls.__dataclass_params__ = twin.__dataclass_params__
        cls.__dataclass_fields__ = found = twin.__dataclass_fields__
        return found

    def attributes(self) -> Iterator[_Attribute]:
        """Those that the class itself has, not those of its bases."""
        kw_only = self._kw_only
        for name, hint in self._cls.__annotations__.items():
            if hint.startswith(_KW_ONLY):
                kw_only = True
            elif not hint.startswith(_NO_FIELDS):
                said = self._defaults.get(name, MISSING)
                if not isinstance(said, Field):
                    yield _Attribute(name, hint, said, MISSING, kw_only)
                    continue
                named = kw_only if said.kw_only is MISSING else bool(said.kw_only)
                yield _Attribute(name, hint, said.default, said.default_factory, named, said.repr, said.compare)


@cache
def _attributes(cls: Any) -> tuple[_Attribute, ...]:
    """Those of the class and its bases, in the order of the parameters."""
    kept = [base.__dict__["__record__"] for base in reversed(cls.__mro__) if "__record__" in base.__dict__]
    return tuple({one.name: one for fields in kept for one in fields.attributes()}.values())


class _Init:
    """Stands in for `__init__` until a few instances are made, which it fills itself.

    Compiling one takes as long as filling a dozen instances, and a run of a few cases has no more of most classes.
    """

    __slots__ = ("_cls", "_filled")

    def __set_name__(self, cls: Any, name: str) -> None:
        self._cls = cls
        self._filled = 0

    def __get__(self, instance: object, owner: Any) -> Any:
        if instance is not None and self._filled < _FILLED_BY_HAND:
            self._filled += 1
            return partial(self._fill, instance)
        return self._init().__get__(instance, owner)

    def _init(self) -> Callable[..., None]:
        cls = self._cls
        if cls.__dict__["__init__"] is self:
            cls.__init__ = _compiled(cls)
        init: Callable[..., None] = cls.__dict__["__init__"]
        return init

    def _fill(self, instance: Any, /, *args: Any, **given: Any) -> None:
        cls = self._cls
        attributes = _attributes(cls)
        places = [one.name for one in attributes if not one.kw_only]
        values = {**dict(zip(places, args, strict=False)), **given}
        is_odd = len(values) < len(args) + len(given)
        for one in attributes:
            if one.name not in values and (one.default is not MISSING or one.factory is not MISSING):
                values[one.name] = one.factory() if one.default is MISSING else one.default
        if is_odd or values.keys() != {one.name for one in attributes}:
            self._init()(instance, *args, **given)  # which says what is wrong
            return
        put = object.__setattr__ if cls.__setattr__ is _refuse else setattr
        for one in attributes:
            put(instance, one.name, values[one.name])
        if hasattr(cls, "__post_init__"):
            instance.__post_init__()


class _MatchArgs:
    """What ``case Point(x, y)`` takes the values from."""

    def __get__(self, instance: object, cls: Any) -> tuple[str, ...]:
        return tuple(one.name for one in _attributes(cls) if not one.kw_only)


class _Signature:
    """What `inspect.signature` and `help` show of the class."""

    def __get__(self, instance: object, cls: Any) -> Signature:
        if instance is not None:
            raise AttributeError("__signature__")
        whole = signature(cls.__init__)
        return whole.replace(parameters=list(whole.parameters.values())[1:])


class _Factory:
    def __repr__(self) -> str:
        return "<factory>"


_FACTORY = _Factory()  # the default of a field that has a default_factory


def _compiled(cls: Any) -> Callable[..., None]:
    attributes = _attributes(cls)
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


def _parameter(one: _Attribute, names: dict[str, Any]) -> str:
    if one.default is not MISSING:
        names[f"_default_{one.name}"] = one.default
        return f"{one.name}=_default_{one.name}"
    return one.name if one.factory is MISSING else f"{one.name}=_factory"


def _assignment(cls: Any, one: _Attribute, names: dict[str, Any]) -> str:
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
    names = [one.name for one in _attributes(cls) if one.is_compared]
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
    inner = ", ".join(f"{one.name}={getattr(self, one.name)!r}" for one in _attributes(self.__class__) if one.is_shown)
    return f"{self.__class__.__qualname__}({inner})"


def _refuse(self: object, name: str, value: object = None) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _state(self: Any) -> list[Any]:
    return [getattr(self, one.name) for one in _attributes(self.__class__)]


def _set_state(self: Any, state: list[Any]) -> None:
    for one, value in zip(_attributes(self.__class__), state, strict=True):
        object.__setattr__(self, one.name, value)


_MATCH_ARGS = _MatchArgs()
_SIGNATURE = _Signature()
_FROZEN: dict[str, Any] = {
    "__setattr__": _refuse,
    "__delattr__": _refuse,
    "__getstate__": _state,  # the usual ones would set attributes
    "__setstate__": _set_state,
}
