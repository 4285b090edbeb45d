"""`times`: how often an expected call is made."""

from __future__ import annotations

from typing import Any

from evalkit.checks.reading import ExpectationReader, KeyPath

_TIMES_KEYS = ("min", "max")
_NEVER = "demands that the call is never made; list it under forbidden_function_calls instead"


def read_times(reader: ExpectationReader, path: KeyPath, value: Any) -> tuple[int, int | None]:
    """Least and greatest number of calls. `{max: 3}` is one to three, `{min: 2}` two or more."""
    if isinstance(value, dict):
        return _read_range(reader, path, value)
    if _is_zero(value):
        reader.add_problem(path, f"{reader.format_place(path)}: 0 {_NEVER}")
        return 1, 1
    count = _read_count(reader, path, value, 1) or 1
    return count, count


def _read_range(reader: ExpectationReader, path: KeyPath, value: dict[Any, Any]) -> tuple[int, int | None]:
    for key in value:
        if key not in _TIMES_KEYS:
            reader.report_unknown_key(path, key, _TIMES_KEYS)
    if not value:
        reader.report_wrong(path, value, "a number, or a mapping with 'min' and 'max'")
    minimum = _read_count(reader, (*path, "min"), value["min"], 0) if "min" in value else 1
    if _is_zero(value.get("max")):
        reader.add_problem(path, f"{reader.format_place(path)}: max 0 {_NEVER}")
        return 0, None
    maximum = _read_count(reader, (*path, "max"), value["max"], 1) if "max" in value else None
    if minimum is not None and maximum is not None and minimum > maximum:
        reader.add_problem(path, f"{reader.format_place(path)}: min {minimum} is greater than max {maximum}")
    return minimum or 0, maximum


def _is_zero(value: Any) -> bool:
    return value == 0 and not isinstance(value, bool)


def _read_count(reader: ExpectationReader, path: KeyPath, value: Any, minimum: int) -> int | None:
    count = reader.read_number(path, value, is_whole=True, minimum=minimum)
    return None if count is None else int(count)
