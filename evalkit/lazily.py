"""Names of a package that are imported when they are first used: what nobody uses costs nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any


def imported_on_use(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """The ``__getattr__`` of `package`. `homes` gives each name's module, in the package unless it says ``evalkit.``.

    Raises AttributeError for other names. (`evalkit` itself has a function of its own: an idle plugin imports nothing.)
    """

    def found(name: str) -> Any:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        from importlib import import_module

        module = import_module(home if home.startswith("evalkit.") else f"{package}.{home}")
        value = getattr(module, name)
        setattr(sys.modules[package], name, value)
        return value

    return found
