"""Python objects that a case names: ``module:function``, ``module:Class.method``."""

from __future__ import annotations

import importlib
import re
from typing import Any, NamedTuple

from evalkit.errors import did_you_mean

_DOTTED = r"[^\W\d]\w*(?:\.[^\W\d]\w*)*"
_TARGET = re.compile(rf"({_DOTTED}):({_DOTTED})")


class TargetError(Exception):
    """A target that names nothing; the text says which step fails, and what is near."""


class TargetObject(NamedTuple):
    """`value` is the attribute `name` of `owner`, a module or a class."""

    owner: Any
    name: str
    value: Any


def check_form(target: Any, example: str) -> re.Match[str]:
    """TargetError for what can't be a target, whatever there is to import; `example` shows the form in its text."""
    match = _TARGET.fullmatch(target) if isinstance(target, str) else None
    if match is None:
        raise TargetError(f"{target!r} does not name a Python object; write it as {example!r}")
    return match


def find_object(target: Any, example: str) -> TargetObject:
    """Import and walk to `target`. TargetError where that is impossible; `example` shows the form in its text."""
    match = check_form(target, example)
    owner: Any = None
    value: Any = _import_module(match[1])
    for name in match[2].split("."):
        owner = value
        try:
            value = getattr(owner, name)
        except AttributeError:
            raise TargetError(_explain_missing_attribute(owner, name)) from None
    return TargetObject(owner, name, value)


def _import_module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise TargetError(f"importing '{name}' failed: {error}") from error
        raise TargetError(f"there is no module '{error.name}'{_suggest_module(error.name)}") from None
    except Exception as error:
        raise TargetError(f"importing '{name}' failed: {type(error).__name__}: {error}") from error


def _suggest_module(name: str) -> str:
    """The nearest sibling, if the package that should hold the module exists."""
    import pkgutil
    import sys

    package, _, last = name.rpartition(".")
    parent = sys.modules.get(package)
    places = getattr(parent, "__path__", None) if package else None
    if places is None:
        return ""
    hint = did_you_mean(last, [module.name for module in pkgutil.iter_modules(places)])
    return hint or f" in {package}"


def _explain_missing_attribute(owner: Any, name: str) -> str:
    kind = (
        "class"
        if isinstance(owner, type)
        else "module"
        if hasattr(owner, "__path__") or _is_module(owner)
        else "object"
    )
    return f"{kind} '{getattr(owner, '__qualname__', None) or getattr(owner, '__name__', owner)}' has no '{name}'" + (
        did_you_mean(name, [candidate for candidate in dir(owner) if not candidate.startswith("__")])
    )


def _is_module(value: Any) -> bool:
    from types import ModuleType

    return isinstance(value, ModuleType)
