"""Records that are read by key too, as the JSON that they stand for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar


class FieldAccess:
    """``call["name"]``, ``call.get("id")``, ``"name" in call`` and ``dict(call)``, for a record's fields."""

    __slots__ = ()

    __struct_fields__: ClassVar[tuple[str, ...]]  # every user is a msgspec.Struct

    def keys(self) -> tuple[str, ...]:
        """The names of the fields."""
        return tuple(self.__struct_fields__)

    def get(self, key: str, default: Any = None) -> Any:
        """The field `key`, or `default` if there is none."""
        return getattr(self, key) if key in self.__struct_fields__ else default

    def __getitem__(self, key: str) -> Any:
        if key not in self.__struct_fields__:
            raise KeyError(key)
        return getattr(self, key)

    def __contains__(self, key: object) -> bool:
        return key in self.__struct_fields__

    def __iter__(self) -> Iterator[str]:
        return iter(self.__struct_fields__)
