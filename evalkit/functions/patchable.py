"""What a patch target is: a function, method, class or static method, async or a generator; or why it is none."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from types import FunctionType, ModuleType
from typing import Any

from msgspec import Struct

from evalkit.functions.targets import TargetError, find_object

PLAIN, ASYNC, GENERATOR, ASYNC_GENERATOR = "plain", "async", "generator", "async generator"

_PATCH_EXAMPLE = "shop.clients:WarrantyClient.check"
_HEAP_TYPE, _IMMUTABLE_TYPE = 1 << 9, 1 << 8  # of a class's __flags__


class PatchTarget(Struct, frozen=True, eq=False):
    """A callable attribute: where it lives, and what is called in the end.

    `stored` is the attribute as the owner's dictionary holds it, e.g. a classmethod object, `function` what is under
    it. `takes_self`: its first argument is an instance or class, which is no argument of the function.
    """

    text: str
    owner: Any
    name: str
    stored: Any
    function: Callable[..., Any]
    kind: str
    takes_self: bool
    signature: inspect.Signature | None  # without self; None where Python does not know

    @property
    def by_code(self) -> bool:
        """Whether the function itself can be changed, so that every reference to it is patched."""
        return type(self.function) is FunctionType and self.name in getattr(self.owner, "__dict__", {})

    def name_arguments(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments by name, as they were passed (no defaults). TypeError where they don't fit."""
        positional = args[1:] if self.takes_self else args
        if self.signature is None:
            return {**({"args": list(positional)} if positional else {}), **kwargs}
        arguments: dict[str, Any] = {}
        bound_arguments = self.signature.bind(*positional, **kwargs).arguments
        for name, value in bound_arguments.items():
            kind = self.signature.parameters[name].kind
            if kind is inspect.Parameter.VAR_KEYWORD:
                arguments.update(value)
            else:
                arguments[name] = list(value) if kind is inspect.Parameter.VAR_POSITIONAL else value
        return arguments


def find_patch_target(text: Any) -> PatchTarget:
    """The target that `text` names. TargetError where there is none, or none that can be replaced."""
    owner, name, value = find_object(text, _PATCH_EXAMPLE)
    stored = inspect.getattr_static(owner, name, value)
    if isinstance(value, type):
        raise TargetError(f"'{text}' is a class; name one of its methods, as in '{text}.{_find_method_name(value)}'")
    if isinstance(stored, property) or not callable(value):
        description = "a property" if isinstance(stored, property) else f"no function but a {type(value).__name__}"
        raise TargetError(f"'{text}' is {description}")
    if isinstance(owner, type) and (not owner.__flags__ & _HEAP_TYPE or owner.__flags__ & _IMMUTABLE_TYPE):
        raise TargetError(f"'{text}' belongs to a built-in type, whose methods Python does not let be replaced")
    if isinstance(stored, (staticmethod, classmethod)):
        function, takes_self = stored.__func__, isinstance(stored, classmethod)
    elif isinstance(owner, type):
        function, takes_self = stored, hasattr(stored, "__get__")
    else:
        function, takes_self = value, False
    return PatchTarget(
        text, owner, name, stored, function, _find_kind(function), takes_self, _find_signature(function, takes_self)
    )


def find_patch_problem(text: Any, *, check_exists: bool = True) -> str | None:
    """Why `text` can't be patched, or None. Without `look` nothing is imported, and only its form is judged."""
    try:
        if check_exists:
            find_patch_target(text)
        elif not isinstance(text, str) or ":" not in text:
            raise TargetError(f"{text!r} does not name a Python object; write it as {_PATCH_EXAMPLE!r}")
    except TargetError as error:
        return str(error)
    return None


def is_module(owner: Any) -> bool:
    return isinstance(owner, ModuleType)


def _find_method_name(cls: type) -> str:
    public = (name for name, value in vars(cls).items() if not name.startswith("_") and callable(value))
    return next(public, "method")


def _find_kind(function: Callable[..., Any]) -> str:
    if inspect.isasyncgenfunction(function):
        return ASYNC_GENERATOR
    if inspect.isgeneratorfunction(function):
        return GENERATOR
    # A plain wrapper around an async function (a decorator with functools.wraps) returns its coroutine.
    inner = inspect.unwrap(function)
    called = getattr(type(inner), "__call__", None) if not isinstance(inner, functools.partial) else None  # noqa: B004
    return ASYNC if inspect.iscoroutinefunction(inner) or inspect.iscoroutinefunction(called) else PLAIN


def _find_signature(function: Callable[..., Any], takes_self: bool) -> inspect.Signature | None:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return None
    parameters = list(signature.parameters.values())
    named_first = bool(parameters) and parameters[0].kind is not inspect.Parameter.VAR_POSITIONAL
    return signature.replace(parameters=parameters[1:]) if takes_self and named_first else signature
