"""Putting a hook where a function was, and taking it away again.

A plain Python function gets another `__code__`: it stays the same object, so that every reference to it is patched,
the ones made by ``from shop.clients import check`` and by tables of tools included. What has no code of its own (C
functions, callable objects, methods that a base class owns) is replaced as an attribute, and under every module-level
name that refers to it.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from functools import cache
from types import CodeType, FunctionType
from typing import Any, Protocol

from evalkit.functions.patchable import ASYNC, ASYNC_GENERATOR, GENERATOR, PLAIN, PatchTarget, is_module

Hook = Callable[[tuple[Any, ...], dict[str, Any]], Any]

_ABSENT: Any = object()
_PLACEHOLDER = "the hook's place among the constants"
_BODIES = {
    PLAIN: "return hook(args, kwargs)",
    ASYNC: "return await hook(args, kwargs)",
    GENERATOR: "return (yield from hook(args, kwargs))",
    ASYNC_GENERATOR: "async for item in hook(args, kwargs): yield item",
}


class Swap(Protocol):
    """`real` is the original, callable at any time; `install` and `remove` come in turn."""

    real: Callable[..., Any]

    def install(self) -> None: ...

    def remove(self) -> None: ...


def swap_for(target: PatchTarget, hook: Hook) -> Swap:
    """The way to put `hook` in the place of `target`."""
    if target.by_code and isinstance(target.function, FunctionType):
        return CodeSwap(target.function, hook)
    return AttributeSwap(target, hook)


class CodeSwap:
    """Exchanges a function's code; `real` is a function of its own with the original code."""

    def __init__(self, function: FunctionType, hook: Hook) -> None:
        self._function = function
        self._original = function.__code__
        real = FunctionType(
            function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
        )
        real.__kwdefaults__ = function.__kwdefaults__
        real.__qualname__ = function.__qualname__
        self.real: Callable[..., Any] = real
        self._hooked_code = _build_hooked_code(function.__code__, hook)
        self._signature: Any = _ABSENT

    def install(self) -> None:
        import inspect

        self._signature = vars(self._function).get("__signature__", _ABSENT)
        # Frameworks that read signatures while the case runs must still see the function's own.
        self._function.__signature__ = inspect.signature(self._function)  # type: ignore[attr-defined]
        self._function.__code__ = self._hooked_code

    def remove(self) -> None:
        self._function.__code__ = self._original
        if self._signature is _ABSENT:
            del self._function.__signature__  # type: ignore[attr-defined]
        else:
            self._function.__signature__ = self._signature  # type: ignore[attr-defined]


def _build_hooked_code(original: CodeType, hook: Hook) -> CodeType:
    code = _build_trampoline(_find_code_kind(original), len(original.co_freevars))
    return code.replace(
        co_consts=tuple(hook if constant == _PLACEHOLDER else constant for constant in code.co_consts),
        co_name=original.co_name,
        co_qualname=original.co_qualname,
        co_filename=original.co_filename,
        co_firstlineno=original.co_firstlineno,
    )


def _find_code_kind(code: CodeType) -> str:
    import inspect

    if code.co_flags & inspect.CO_ASYNC_GENERATOR:
        return ASYNC_GENERATOR
    if code.co_flags & inspect.CO_GENERATOR:
        return GENERATOR
    return ASYNC if code.co_flags & inspect.CO_COROUTINE else PLAIN


@cache
def _build_trampoline(kind: str, free_variables: int) -> CodeType:
    """Code of the given kind that hands everything to the constant `hook`. A function takes only code with as many
    free variables as it has cells, so that many are named, in a branch that is never compiled."""
    names = [f"free_{number}" for number in range(free_variables)]
    word = "async def" if kind in (ASYNC, ASYNC_GENERATOR) else "def"
    source = f"""
def enclosing({", ".join(names)}):
    {word} trampoline(*args, **kwargs):
        hook = {_PLACEHOLDER!r}
        if 0: {"; ".join(names) or "pass"}
        {_BODIES[kind]}
"""
    code = compile(source, "<evalkit patch>", "exec")
    for _ in range(2):
        code = next(constant for constant in code.co_consts if isinstance(constant, CodeType))
    return code


class AttributeSwap:
    """Replaces an attribute by a function that calls the hook."""

    def __init__(self, target: PatchTarget, hook: Hook) -> None:
        self._target = target
        self.real: Callable[..., Any] = target.function
        self._original = vars(target.owner).get(target.name, _ABSENT) if hasattr(target.owner, "__dict__") else _ABSENT
        self._wrapper = _build_wrapper(target, hook)
        self._places: list[tuple[dict[str, Any], str]] = []

    def install(self) -> None:
        setattr(self._target.owner, self._target.name, self._wrapper)
        if is_module(self._target.owner):
            self._places = list(_find_module_names(self.real))
            for namespace, name in self._places:
                namespace[name] = self._wrapper

    def remove(self) -> None:
        if self._original is _ABSENT:
            delattr(self._target.owner, self._target.name)
        else:
            setattr(self._target.owner, self._target.name, self._original)
        for namespace, name in self._places:
            if namespace.get(name) is self._wrapper:
                namespace[name] = self.real


def _find_module_names(value: Any) -> list[tuple[dict[str, Any], str]]:
    """Every module-level name that refers to `value`."""
    spaces = [vars(module) for module in tuple(sys.modules.values()) if is_module(module)]
    return [(space, name) for space in spaces for name, candidate in tuple(space.items()) if candidate is value]


def _build_wrapper(target: PatchTarget, hook: Hook) -> Any:
    function = _build_function(target.kind, hook)
    functools.update_wrapper(function, target.function)
    if isinstance(target.stored, (staticmethod, classmethod)):
        return type(target.stored)(function)
    if isinstance(target.owner, type) and not target.takes_self:
        return staticmethod(function)
    return function


def _build_function(kind: str, hook: Hook) -> FunctionType:
    if kind == ASYNC:

        async def call_async(*args: Any, **kwargs: Any) -> Any:
            return await hook(args, kwargs)

        return call_async  # type: ignore[return-value]
    if kind == GENERATOR:

        def generate(*args: Any, **kwargs: Any) -> Any:
            return (yield from hook(args, kwargs))

        return generate  # type: ignore[return-value]
    if kind == ASYNC_GENERATOR:

        async def generate_async(*args: Any, **kwargs: Any) -> Any:
            async for item in hook(args, kwargs):
                yield item

        return generate_async  # type: ignore[return-value]

    def call_hook(*args: Any, **kwargs: Any) -> Any:
        return hook(args, kwargs)

    return call_hook  # type: ignore[return-value]
