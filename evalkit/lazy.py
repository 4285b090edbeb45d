"""Modules that are imported when a name of theirs is first used: what few cases need costs the others nothing.

A module that needs another one rarely names it twice, for type checkers and for Python::

    if TYPE_CHECKING:
        from evalkit.agents import recorded
    else:
        recorded = LazyModule("evalkit.agents.recorded")

`LAZY` in tests/test_layers.py lists these modules, each with its reason. Other imports stand at the top.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

# What was loaded so far. Agents and tests take away what was imported meanwhile, as `patch.dict(sys.modules)` does: a
# second copy of a module would have budgets, locks and classes of its own.
_loaded: dict[str, ModuleType] = {}


class LazyModule:
    """Stands for the module `name`, which is imported when one of its attributes is first read."""

    __slots__ = ("__dict__", "_module", "_name")

    def __init__(self, name: str) -> None:
        self._name = name
        self._module: ModuleType | None = None

    def __getattr__(self, attribute: str) -> object:
        if self._module is None:
            self._module = load(self._name)
            self.__dict__ = self._module.__dict__  # from now on its names are found without a call
        return getattr(self._module, attribute)

    def __repr__(self) -> str:
        return f"LazyModule({self._name!r})"


def load(name: str) -> ModuleType:
    """Import a module of evalkit, once in a process."""
    if name in _loaded:
        return _loaded[name]
    # Copies: in the midst of a list of items, which makes a tuple of each, another thread may import something.
    for other, module in _loaded.copy().items():
        sys.modules.setdefault(other, module)
    module = import_module(name)
    evalkits = {other: found for other, found in sys.modules.copy().items() if other.startswith("evalkit.")}
    _loaded.update({other: found for other, found in evalkits.items() if not _is_half_imported(found)})
    return module


def load_name(target: str) -> Any:
    """Return what ``module:name`` names, imported if need be."""
    module, _, name = target.partition(":")
    return getattr(load(module), name)


def _is_half_imported(module: ModuleType) -> bool:
    """Return whether another thread is importing a module right now, which lacks some of its names until then."""
    return getattr(module.__spec__, "_initializing", False) is True


def is_loaded(module: ModuleType) -> bool:
    """Return whether a lazy module was imported: before that, no object is of one of its classes."""
    assert isinstance(module, LazyModule)
    return module._module is not None or module._name in sys.modules or module._name in _loaded
