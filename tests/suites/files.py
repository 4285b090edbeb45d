"""Case files in which one expectation was changed for the worse, each with the code and words that must say so."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.suites.suite import GROUPS

NOBODY = "words that nobody wrote"
# Keys with few values: what to write instead, and the code that must say so.
OTHERWISE: dict[str, dict[Any, tuple[Any, str]]] = {
    "channel": {"text": ("native", "wrong_channel"), "native": ("text", "wrong_channel")},
    "outcome": {"error": ("ok", "wrong_outcome"), "ok": ("error", "wrong_outcome")},
    "valid": {False: (True, "invalid_arguments")},
}


class Changed(NamedTuple):
    """A case file with one expectation changed, the code that must be among the reasons, and words of its message."""

    what: str
    data: dict[str, Any]
    code: str
    says: str


def changes(data: dict[str, Any]) -> Iterator[Changed]:
    """Every way in which one expectation of `data` can be changed for the worse."""
    for path in list(call_lists(data)):
        yield from changed_lists(data, path)
    for path, value in list(walked(data["expected_output"], ("expected_output",))):
        key = str(path[-1]) if isinstance(path[-1], str) else str(path[-2])
        if path[-2] in ("arguments", "arguments_contain") and "forbidden_function_calls" not in path:
            yield Changed(f"another {path}", replaced(data, path, NOBODY), "wrong_argument", NOBODY)
        elif path[-2] == "result_contains":
            yield Changed(f"another {path}", replaced(data, path, NOBODY), "result_mismatch", NOBODY)
        elif path == ("expected_output", "stop_reason"):
            yield Changed("another stop reason", replaced(data, path, NOBODY), "stop_reason", NOBODY)
        elif key.endswith("_contains") and isinstance(value, str):
            yield Changed(f"another {path}", replaced(data, path, NOBODY), "text_missing", NOBODY)
        elif path[-1] in OTHERWISE and value in OTHERWISE[key]:
            instead, code = OTHERWISE[key][value]
            yield Changed(f"another {path}", replaced(data, path, instead), code, "")
        elif key == "ticket_fields" or path[-2] == "ticket_fields":
            fields = {"serial_number": NOBODY}
            yield Changed(f"another {path}", replaced(data, path[:2], fields), "wrong_argument", NOBODY)


def walked(value: Any, path: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Every value below `value`, with its path."""
    steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, item in steps:
        yield (*path, step), item
        if not (isinstance(item, dict) and any(str(key).startswith("$") for key in item)):
            yield from walked(item, (*path, step))


def call_lists(data: dict[str, Any]) -> Iterator[tuple[str | int, ...]]:
    """The paths of the lists of expected calls, groups included."""
    root = ("expected_output", "expected_function_calls")
    if "expected_function_calls" in data["expected_output"]:
        yield root
    yield from (path for path, _ in walked(data["expected_output"], ("expected_output",)) if path[-1] in GROUPS)


def changed_lists(data: dict[str, Any], path: tuple[str | int, ...]) -> Iterator[Changed]:
    calls = at(data, path)
    for index, call in enumerate(calls):
        fewer, more = calls[:index] + calls[index + 1 :], calls[: index + 1] + calls[index:]
        name = name_of(call)
        if len(calls) > 1 or len(path) == 2:
            yield Changed(f"{name} not expected", replaced(data, path, fewer), "unexpected_call", name)
        yield Changed(f"{name} expected twice", replaced(data, path, more), "missing_call", name)
        if path[-1] == "expected_function_calls" and index:
            turned = [*calls[: index - 1], call, calls[index - 1], *calls[index + 1 :]]
            yield Changed(f"{name} expected earlier", replaced(data, path, turned), "wrong_order", name)


def name_of(call: Any) -> str:
    group = next((key for key in GROUPS if isinstance(call, dict) and key in call), None)
    if group:
        return name_of(call[group][0])
    return str(call if isinstance(call, str) else call["function_name"])


def at(data: Any, path: tuple[str | int, ...]) -> Any:
    for step in path:
        data = data[step]
    return data


def replaced(data: dict[str, Any], path: tuple[str | int, ...], value: Any) -> dict[str, Any]:
    changed = copy.deepcopy(data)
    at(changed, path[:-1])[path[-1]] = value
    return changed
