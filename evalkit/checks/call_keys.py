"""The keys of an expected call. A new one is a class derived from `CallKey`, in `KEYS` of its module, and a row here.

A module is imported by the cases that have one of its keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from evalkit.checks.call_key import CallDraft, CallKey
from evalkit.checks.key_schemas import BOOLEAN, COUNT, NAME, POSITIVE, DescribedKey, describe_keys, make_ref
from evalkit.checks.reader import ExpectationReader
from evalkit.errors import KeyPath
from evalkit.hooks import CALL
from evalkit.hooks.key_table import KeyTable
from evalkit.jsonvalue import JsonDict, JsonObject
from evalkit.lazy import LazyModule

if TYPE_CHECKING:
    from evalkit.checks import texts
else:
    texts = LazyModule("evalkit.checks.texts")


class FunctionKey(CallKey):
    """`function_name`, which is read before all others."""

    name = "function_name"
    schema = NAME
    doc = "The function that must be called."
    forbidden_doc = "The function that must not be called."
    meant_doc = "The function."
    looks_at_arguments = False

    def read(self, draft: CallDraft, path: KeyPath, value: Any) -> None:
        return None


class TimesKey(CallKey):
    """`times`."""

    name = "times"
    schema = make_ref("times")
    doc = "How often the call is made: a number, or `{min, max}`; once by default."
    definitions: Mapping[str, JsonObject] = {
        "times": {
            "oneOf": [
                POSITIVE,
                {
                    "type": "object",
                    "properties": {"min": COUNT, "max": POSITIVE},
                    "additionalProperties": False,
                    "minProperties": 1,
                },
            ]
        }
    }
    looks_at_arguments = False

    def read(self, draft: CallDraft, path: KeyPath, value: Any) -> None:
        draft.min, draft.max = read_times(draft.reader, path, value)
        draft.has_times = True


_NEVER = "demands that the call is never made; list it under forbidden_function_calls instead"


def read_times(reader: ExpectationReader, path: KeyPath, value: object) -> tuple[int, int | None]:
    """Read the least and greatest number of calls. `{max: 3}` is one to three, `{min: 2}` two or more."""
    if not isinstance(value, dict):
        if _is_zero(value):
            reader.add_problem(path, f"{reader.format_place(path)}: 0 {_NEVER}")
            return 1, 1
        count = reader.read_count(path, value) or 1
        return count, count
    reader.check_keys(path, value, ("min", "max"))
    if not value:
        reader.report_wrong(path, value, "a number, or a mapping with 'min' and 'max'")
    minimum = reader.read_count((*path, "min"), value["min"], 0) if "min" in value else 1
    if _is_zero(value.get("max")):
        reader.add_problem(path, f"{reader.format_place(path)}: max 0 {_NEVER}")
        return 0, None
    maximum = reader.read_count((*path, "max"), value["max"]) if "max" in value else None
    if minimum is not None and maximum is not None and minimum > maximum:
        reader.add_problem(path, f"{reader.format_place(path)}: min {minimum} is greater than max {maximum}")
    return minimum or 0, maximum


def _is_zero(value: object) -> bool:
    return value == 0 and not isinstance(value, bool)


class OptionalKey(CallKey):
    """`optional`."""

    name = "optional"
    schema = BOOLEAN
    doc = "The call may be missing; if it is made, it must match."
    looks_at_arguments = False

    def read(self, draft: CallDraft, path: KeyPath, value: Any) -> None:
        draft.optional = bool(draft.reader.read_boolean(path, value))


KEYS = (FunctionKey(), TimesKey(), OptionalKey())
_ARGUMENTS = "evalkit.checks.call_checks"
_RESULTS = "evalkit.checks.call_results"
_ORIGIN = "evalkit.checks.call_origin"
_KEYS = {
    "function_name": __name__,
    "arguments": _ARGUMENTS,
    "arguments_contain": _ARGUMENTS,
    "arguments_absent": _ARGUMENTS,
    "result_contains": _ARGUMENTS,
    "outcome": _RESULTS,
    "times": __name__,
    "optional": __name__,
    "channel": _ORIGIN,
    "answered_by": _ORIGIN,
    "by": _ORIGIN,
    "in_reply_to": _ORIGIN,
    "max_latency_ms": "evalkit.checks.budgets",
    "valid": _RESULTS,
    "grounded": "evalkit.checks.grounded",
}
_TABLE: KeyTable[CallKey] = KeyTable(_KEYS, CALL)
_FORBIDDEN: KeyTable[CallKey] = KeyTable(_KEYS, CALL, "forbidden_doc")
_MEANT: KeyTable[CallKey] = KeyTable(_KEYS, CALL, "meant_doc")


def list_call_keys() -> Mapping[str, CallKey]:
    """Return the keys of an expected call by name, in their order; those of texts in arguments have no fixed names."""
    return _TABLE


def list_forbidden_keys() -> Mapping[str, CallKey]:
    """Return the keys that a forbidden call may have."""
    return _FORBIDDEN


def list_meant_keys() -> Mapping[str, CallKey]:
    """Return the keys that a call may have which a rule or a condition means."""
    return _MEANT


TEXT_ENDS = ("_contains", "_excludes")


def find_text_argument(key: str) -> str | None:
    """Return the argument that a key like `body_contains` is about; None for other keys."""
    if key.endswith(TEXT_ENDS) and key not in TEXT_ENDS:
        return key[: -len("_contains")]  # both ends are as long
    return None


def find_call_key(name: str) -> CallKey | None:
    """Return the key of an expected call that has this name; None if there is none."""
    return _TABLE.find(name) or (texts.TEXT_KEY if find_text_argument(name) else None)


def describe_call(table: Mapping[str, DescribedKey], sentence: str = "doc") -> JsonDict:
    """Describe a call with the keys of `table`, and those of texts in its arguments."""
    return {
        "type": "object",
        "properties": describe_keys(table, sentence),
        "patternProperties": {texts.TEXT_KEY.pattern: texts.TEXT_KEY.schema},
        "required": ["function_name"],
        "additionalProperties": False,
    }
