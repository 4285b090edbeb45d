"""The base of all classes whose methods are hooks: those of other packages are held to the types of the hooks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evalkit.lazy import LazyModule

if TYPE_CHECKING:
    from evalkit.hooks import returned
else:
    returned = LazyModule("evalkit.hooks.returned")


class Hooks:
    """A class of hooks. evalkit's own are typed, and need no check when they are called."""

    __slots__ = ()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if not cls.__module__.startswith("evalkit."):
            returned.check_hooks(cls)
