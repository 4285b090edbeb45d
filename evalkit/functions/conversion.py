"""The long way of `jsondata`: from objects that have an obvious JSON form to that form."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from datetime import date, time
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from pathlib import PurePath
from typing import Any
from uuid import UUID

from msgspec import Struct

from evalkit.errors import format_path
from evalkit.functions.jsondata import MAX_DEPTH, KeyPath, NotJsonError


def raise_not_json(value: Any, path: KeyPath, reason: str) -> Any:
    location = f"at {format_path(path)}: " if path else ""
    raise NotJsonError(f"{location}{reason or build_type_label(value, path, reason) + ' is not JSON'}")


def build_type_label(value: Any, path: KeyPath, reason: str) -> Any:
    if isinstance(value, float):
        return value  # nan and infinity: json writes them, and the agent did send them
    kind = type(value)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return f"<{name}>"


class JsonConverter:
    """`odd` answers for what has no JSON form: it raises, or gives a text in its place."""

    def __init__(self, fallback: Callable[[Any, KeyPath, str], Any]) -> None:
        self._fallback = fallback
        self._open_ids: set[int] = set()

    def convert(self, value: Any, path: KeyPath) -> Any:
        if isinstance(value, Enum):
            return self.convert(value.value, path)
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, (str, int)):
            return str(value) if isinstance(value, str) else int(value)  # without its subclass
        if isinstance(value, float):
            return float(value) if math.isfinite(value) else self._fallback(value, path, f"{value} is not JSON")
        if id(value) in self._open_ids or len(self._open_ids) > MAX_DEPTH:
            return self._fallback(
                value, path, "the value contains itself" if id(value) in self._open_ids else "too deep"
            )
        self._open_ids.add(id(value))
        try:
            return self._convert_container(value, path)
        finally:
            self._open_ids.discard(id(value))

    def _convert_container(self, value: Any, path: KeyPath) -> Any:
        if isinstance(value, Mapping):
            return {self._convert_key(key, path): self.convert(item, (*path, str(key))) for key, item in value.items()}
        if isinstance(value, (list, tuple, deque)):
            return [self.convert(item, (*path, index)) for index, item in enumerate(value)]
        if isinstance(value, (set, frozenset)):
            return sorted((self.convert(item, path) for item in value), key=repr)
        if isinstance(value, Struct):
            return {name: self.convert(getattr(value, name), (*path, name)) for name in value.__struct_fields__}
        if is_dataclass(value) and not isinstance(value, type):
            return {f.name: self.convert(getattr(value, f.name), (*path, f.name)) for f in fields(value)}
        return self._convert_object(value, path)

    def _convert_key(self, key: Any, path: KeyPath) -> str:
        if isinstance(key, Enum):
            return self._convert_key(key.value, path)
        if isinstance(key, str):
            return str(key)
        if key is None or isinstance(key, bool):
            return {None: "null", True: "true", False: "false"}[key]  # as the json module writes them
        return str(key if isinstance(key, (int, float)) else self._fallback(key, path, ""))

    def _convert_object(self, value: Any, path: KeyPath) -> Any:
        if isinstance(value, (date, time)):
            return value.isoformat()
        if isinstance(value, (UUID, PurePath)):
            return str(value)
        if isinstance(value, Decimal) and not value.is_finite():
            return self._fallback(value, path, f"{value} is not JSON")
        if isinstance(value, (Decimal, Fraction)):
            return int(value) if value == int(value) else float(value)
        for method, options in (("model_dump", {"mode": "json"}), ("_asdict", {}), ("tolist", {})):
            # pydantic models; objects that show themselves as mappings; numpy's scalars and arrays
            if not isinstance(value, type) and callable(converter := getattr(value, method, None)):
                try:
                    return self.convert(converter(**options), path)
                except NotJsonError:
                    raise
                except Exception as error:
                    return self._fallback(
                        value, path, f"{build_type_label(value, path, '')} failed in {method}(): {error}"
                    )
        return self._fallback(value, path, "")
