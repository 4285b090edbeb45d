"""`times`: how often an expected call is made."""

from __future__ import annotations

from typing import Any

from evalkit.checks.reading import Path, Reader

_KEYS = ("min", "max")
_NEVER = "demands that the call is never made; list it under forbidden_function_calls instead"


def read_times(reader: Reader, path: Path, value: Any) -> tuple[int, int | None]:
    """Least and greatest number of calls. `{max: 3}` is one to three, `{min: 2}` two or more."""
    if isinstance(value, dict):
        return _read_range(reader, path, value)
    if _is_zero(value):
        reader.problem(path, f"{reader.shown(path)}: 0 {_NEVER}")
        return 1, 1
    count = _count(reader, path, value, 1) or 1
    return count, count


def _read_range(reader: Reader, path: Path, value: dict[Any, Any]) -> tuple[int, int | None]:
    for key in value:
        if key not in _KEYS:
            reader.unknown_key(path, key, _KEYS)
    if not value:
        reader.wrong(path, value, "a number, or a mapping with 'min' and 'max'")
    least = _count(reader, (*path, "min"), value["min"], 0) if "min" in value else 1
    if _is_zero(value.get("max")):
        reader.problem(path, f"{reader.shown(path)}: max 0 {_NEVER}")
        return 0, None
    most = _count(reader, (*path, "max"), value["max"], 1) if "max" in value else None
    if least is not None and most is not None and least > most:
        reader.problem(path, f"{reader.shown(path)}: min {least} is greater than max {most}")
    return least or 0, most


def _is_zero(value: Any) -> bool:
    return value == 0 and not isinstance(value, bool)


def _count(reader: Reader, path: Path, value: Any, least: int) -> int | None:
    count = reader.number(path, value, whole=True, least=least)
    return None if count is None else int(count)
