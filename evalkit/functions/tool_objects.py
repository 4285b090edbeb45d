"""The function in a framework's tool object: decorators and tool classes make an object of a function.

The object is what the framework knows, and stays what it is. The function is found where frameworks keep it: in an
attribute, in what a function of the framework has closed over, in a bound method. It is one of the project's own.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from types import FunctionType, MethodType, ModuleType
from typing import NamedTuple

from evalkit.functions.permissions import is_installed

_MOST_OBJECTS = 200  # that are looked at: tools are small
_LEAVES = (type, ModuleType, str, bytes, int, float, type(None))
_CONTAINERS = (dict, list, tuple, set, frozenset)


class HeldFunction(NamedTuple):
    """A function that an object holds; `attribute` is where, "" in a closure or deeper."""

    function: FunctionType
    attribute: str
    takes_self: bool


def find_held_functions(tool: object, module: str, name: str) -> list[HeldFunction]:
    """Return the functions that `tool` holds: the one with the module and the name of the target alone, if there is
    one."""
    found = list(_iter_own_functions(tool, module))
    named = [held for held in found if has_home(held[0], module, name)]
    return named if len(named) == 1 else found


def has_home(function: FunctionType, module: str, name: str) -> bool:
    """Return whether a function was written in that module under that name; decorators show both of another one."""
    return function.__code__.co_name == name and function.__globals__.get("__name__") == module


def _iter_own_functions(tool: object, module: str) -> Iterator[HeldFunction]:
    """Yield the functions of the project that `tool` leads to, each once; what they lead to is their own business."""
    queue: list[tuple[object, str, bool]] = [(tool, "", False)]
    seen = {id(tool)}
    while queue and len(seen) < _MOST_OBJECTS:
        item, attribute, is_method = queue.pop(0)
        if isinstance(item, FunctionType) and _is_own(item, module):
            yield HeldFunction(item, attribute, is_method)
            continue
        for held_name, held in _iter_held(item):
            if id(held) not in seen and not isinstance(held, _LEAVES):
                seen.add(id(held))
                queue.append((held, held_name if item is tool else attribute, isinstance(item, MethodType)))


def _is_own(function: FunctionType, module: str) -> bool:
    home = str(function.__globals__.get("__name__"))
    return home.partition(".")[0] == module.partition(".")[0] or not is_installed(function.__code__.co_filename)


def _iter_held(item: object) -> Iterator[tuple[str, object]]:
    """Yield what an object holds: its attributes, those of pydantic's and of slots too; cells of a function."""
    if isinstance(item, FunctionType):
        for cell in item.__closure__ or ():
            try:
                yield "", cell.cell_contents
            except ValueError:  # it is empty
                continue
    elif isinstance(item, MethodType):
        yield "", item.__func__
        yield "", item.__self__
    elif isinstance(item, functools.partial):
        yield "func", item.func
    elif not isinstance(item, _CONTAINERS):
        yield from dict(getattr(item, "__dict__", None) or {}).items()
        yield from dict(getattr(item, "__pydantic_private__", None) or {}).items()
        for base in type(item).__mro__:
            slots = vars(base).get("__slots__", ())
            yield from ((slot, getattr(item, slot, None)) for slot in ((slots,) if isinstance(slots, str) else slots))
        if getattr(sys.modules.get(type(item).__module__), type(item).__name__, None) is not type(item):
            # A decorator that makes a class for each function keeps it as a method.
            for name, value in vars(type(item)).items():
                yield name, value.__func__ if isinstance(value, staticmethod | classmethod) else value
