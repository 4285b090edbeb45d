"""How a case inherits: mappings merge key by key, lists and scalars replace, null removes."""

from __future__ import annotations

from typing import Any

KeyPath = tuple[str | int, ...]

# `temperature: null` is a value of its own: the model's own temperature.
_NULL_IS_A_VALUE: frozenset[KeyPath] = frozenset({("settings", "temperature")})
OLD_MOCKS, MOCKS = "mock_responses", "mock_function_responses"


def merge_data(outer: dict[str, Any], inner: dict[str, Any], path: KeyPath = ()) -> dict[str, Any]:
    """`inner` over `outer`, neither of them changed. A null that has nothing to remove stays what it is.

    A mapping of `$` keys, a directive or an operator, is one value: it replaces and is replaced as a whole.
    """
    result = dict(outer)
    for key, value in inner.items():
        if value is None and key in outer and (*path, key) not in _NULL_IS_A_VALUE:
            del result[key]
        elif isinstance(value, dict) and isinstance(outer.get(key), dict) and not _is_single_value(value, outer[key]):
            result[key] = merge_data(outer[key], value, (*path, key))
        else:
            result[key] = value
    return result


def _is_single_value(*mappings: dict[str, Any]) -> bool:
    return any(mapping and all(key.startswith("$") for key in mapping) for mapping in mappings)


def rename_old_mocks(data: dict[str, Any]) -> dict[str, Any]:
    """`data` with the older name of the mocks replaced, so that layers merge under one name.

    With both names in one layer nothing is replaced; the loader reports it.
    """
    case_input = data.get("input")
    if not isinstance(case_input, dict) or OLD_MOCKS not in case_input or MOCKS in case_input:
        return data
    renamed = {MOCKS if key == OLD_MOCKS else key: value for key, value in case_input.items()}
    return {**data, "input": renamed}
