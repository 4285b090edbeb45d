"""Modules that are patched right after their import, wherever that happens."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


class PatchAfterImport(MetaPathFinder):
    """Calls `patch` with each module of `names` once it was imported, as long as this stands on `sys.meta_path`."""

    def __init__(self, names: Collection[str], patch: Callable[[ModuleType], None]) -> None:
        self._names = names
        self._patch = patch

    def install(self) -> None:
        """Patch what is imported from now on."""
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def uninstall(self) -> None:
        """Leave later imports alone."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        """Find the module as Python does, and patch it after its code has run."""
        if fullname not in self._names:
            return None
        others = [finder for finder in sys.meta_path if finder is not self]
        found = (finder.find_spec(fullname, path, target) for finder in others)
        spec = next((spec for spec in found if spec is not None), None)
        if spec is None or spec.loader is None:
            return None
        real = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            real(module)
            self._patch(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
