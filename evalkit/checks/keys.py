"""The keys of `expected_output`, of an expected call and of a group: for each a JSON Schema and one sentence.

The tables drive three things that must never drift apart: the unknown-key messages, the JSON Schema for editors
and docs/expectations.md. Schemas refer to what `build_definitions` returns as ``#/$defs/<name>``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from evalkit.model.rubric import RUBRIC_KEYS
from evalkit.model.transcript import ANSWERERS, APPROVALS
from evalkit.operators.base import DATA, LITERAL
from evalkit.operators.base import MODIFIERS as OPERATOR_MODIFIERS
from evalkit.operators.builtin import BUILTIN_OPERATORS


class Key(NamedTuple):
    """A key: the JSON Schema of its value, and one sentence of documentation."""

    schema: Mapping[str, Any]
    doc: str


def _make_ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/$defs/{name}"}


def _describe_choices(choices: Sequence[str]) -> dict[str, Any]:
    """Describe one of `choices`, or a list of them."""
    return {"oneOf": [{"enum": list(choices)}, {"type": "array", "items": {"enum": list(choices)}, "minItems": 1}]}


_BOOLEAN = {"type": "boolean"}
_COUNT = {"type": "integer", "minimum": 0}
_AMOUNT = {"type": "number", "minimum": 0}
_NAME = {"type": "string", "minLength": 1}
NO_TEXT = {"not": {"enum": ["yes", "no", "on", "off", "true", "false"]}}  # texts in YAML 1.2, meant as booleans
_NAMES = {"oneOf": [_NAME, {"type": "array", "items": _NAME, "minItems": 1, "uniqueItems": True}]}
_ARGUMENTS = {"type": ["object", "null"], "additionalProperties": _make_ref("value")}
_SHARE = {"type": "number", "minimum": 0, "maximum": 1}

OUTCOMES = ("ok", "error", "any")
CHANNELS = ("native", "text", "direct")
NO_APPROVAL = "none"
APPROVAL_CHOICES = (*APPROVALS, NO_APPROVAL)
CALL_ORDERS = ("strict", "any")
EXTRA_CALLS = ("forbid", "allow")
BUDGETS = (
    *("max_model_turns", "max_function_calls", "max_tokens"),
    *("max_cost_usd", "processing_time_ms", "max_overhead_ms"),
)
SCORES = ("precision", "recall", "f1", "argument_accuracy")

_CALL_KEYS: dict[str, Key] = {
    "function_name": Key(_NAME, "The function that must be called."),
    "arguments": Key(_ARGUMENTS, "The exact arguments: the same keys with equal values, operators honoured."),
    "arguments_contain": Key(
        _ARGUMENTS,
        "Arguments that must be there, at any depth; a string may be part of the actual string, as whole words.",
    ),
    "arguments_absent": Key(_NAMES, "Names of arguments that must not be sent."),
    "result_contains": Key(
        _make_ref("value"), "What the function must have returned: listed keys present, leaves equal."
    ),
    "outcome": Key(
        {"enum": list(OUTCOMES)}, "Whether the call must succeed (`ok`, the default), fail (`error`), or either."
    ),
    "times": Key(_make_ref("times"), "How often the call is made: a number, or `{min, max}`; once by default."),
    "optional": Key(_BOOLEAN, "The call may be missing; if it is made, it must match."),
    "channel": Key(
        _make_ref("channel"), "How the call must have arrived; `native` is not satisfied by a call recovered from text."
    ),
    "answered_by": Key(
        _make_ref("answered_by"),
        "Who must have answered the call: its `mock`, the `application` itself, an MCP `server`, "
        "the model's `service`, or `nobody`.",
    ),
    "by": Key(_NAMES, "The agent that must have made the call, or several of which one must."),
    "in_reply_to": Key(
        _make_ref("value"),
        "What the user's message must hold that the agent was answering when it made the call: a text, or an operator.",
    ),
    "approval": Key(
        _make_ref("approval"),
        "What a person must have answered to the call: `approved`, `denied`, `changed`, or `none` if nobody was asked.",
    ),
    "max_latency_ms": Key(_AMOUNT, "At most so many milliseconds for the function to answer, on the run's clock."),
    "valid": Key(_BOOLEAN, "`false`: arguments that violate the declared schema are expected here."),
    "grounded": Key(
        _make_ref("grounded"),
        "Arguments of this call whose values must be traceable to the input or to an earlier result.",
    ),
}

GROUP_KEYS: dict[str, Key] = {
    "in_order": Key(_make_ref("group"), "These calls in this order; inside `any_order`, chains may interleave."),
    "any_order": Key(_make_ref("group"), "These calls in any order."),
    "one_of": Key(_make_ref("alternatives"), "Exactly one of these alternatives, each a call or a list of calls."),
    "in_parallel": Key(_make_ref("group"), "These calls, all in one model turn."),
}

_FORBIDDEN_KEYS: dict[str, Key] = {
    "function_name": Key(_NAME, "The function that must not be called."),
    "arguments": Key(_ARGUMENTS, "Only calls with exactly these arguments are forbidden."),
    "arguments_contain": Key(_ARGUMENTS, "Only calls with these arguments are forbidden."),
    "channel": Key(_make_ref("channel"), "Only calls that arrive this way are forbidden."),
    "answered_by": Key(_make_ref("answered_by"), "Only calls that these answered are forbidden."),
    "by": Key(_NAMES, "Only calls of these agents are forbidden."),
    "approval": Key(_make_ref("approval"), "Only calls to which a person answered this are forbidden."),
}

# Of a call that a rule or a condition speaks of: which calls are meant.
_MEANT_KEYS: dict[str, Key] = {
    "function_name": Key(_NAME, "The function."),
    **{
        key: _CALL_KEYS[key]._replace(doc=doc)
        for key, doc in {
            "arguments": "Only calls with exactly these arguments are meant.",
            "arguments_contain": "Only calls with these arguments are meant.",
            "arguments_absent": "Only calls without these arguments are meant.",
            "result_contains": "Only calls that returned this are meant.",
            "outcome": "Only calls that succeeded (`ok`), that failed (`error`), or `any`.",
            "channel": "Only calls that arrived this way are meant.",
            "answered_by": "Only calls that these answered are meant.",
            "by": "Only calls of these agents are meant.",
            "approval": "Only calls to which a person answered this are meant.",
        }.items()
    },
}

POLICY_KEYS: dict[str, Key] = {
    "description": Key({"type": "string"}, "What the policy is for; it stands in the report."),
    "never": Key(_make_ref("policy_calls"), "These calls must not be made; attempts count."),
    "at_most": Key(_COUNT, "At most so many of the calls under `calls`; attempts count."),
    "calls": Key(_make_ref("policy_calls"), "The calls that `at_most` limits."),
    "must": Key(_make_ref("policy_calls"), "One of these calls must be made, and succeed."),
    "before": Key(_make_ref("policy_events"), "The policy holds up to the first of these; without one, to the end."),
    "until": Key(_make_ref("policy_events"), "The same as `before`; it reads better behind `after`."),
    "after": Key(_make_ref("policy_events"), "The policy holds after each of these; without it, from the beginning."),
    "for_each": Key(
        {"oneOf": [*_NAMES["oneOf"], {"type": "object", "additionalProperties": _NAMES, "minProperties": 1}]},
        "The policy holds for each value of this argument by itself; `{function: argument}` where names differ.",
    ),
}

_EXPECTED_KEYS: dict[str, Key] = {
    "expected_function_calls": Key(
        {"type": "array", "items": _make_ref("expected_item")},
        "The calls that the agent must make; `[]` means no call at all, absent means that calls are not judged.",
    ),
    "call_order": Key(
        {"enum": list(CALL_ORDERS)}, "`strict` (default): in the order of the list; `any`: in any order."
    ),
    "extra_calls": Key(
        {"enum": list(EXTRA_CALLS)}, "`forbid` (default): no call beyond the list; `allow`: others may be made as well."
    ),
    "forbidden_function_calls": Key(
        {"oneOf": [_make_ref("forbidden"), {"type": "array", "items": _make_ref("forbidden")}]},
        "Calls that must not be attempted; failed attempts count.",
    ),
    "grounded": Key(
        _make_ref("grounded"), "Arguments of every call that must be traceable to the input or to an earlier result."
    ),
    "valid_arguments": Key(
        _BOOLEAN, "Every call's arguments must satisfy the function's declared schema; `true` unless switched off."
    ),
    "ignored_arguments": Key(
        _NAMES, "Arguments that any call may be sent or not, with any value, where `arguments` does not name them."
    ),
    "final_function_call": Key(_NAME, "The function that must be called last."),
    "expected_handoffs": Key(
        _make_ref("handoffs"),
        "The hand-offs from agent to agent, all of them in their order: `[triage -> billing]`; `[]` means none.",
    ),
    "expected_delegations": Key(
        _make_ref("handoffs"),
        "The agents that agents have asked, as a tool or inside one, all of them in their order: `[desk -> expert]`.",
    ),
    "expected_approvals": Key(
        {"type": "array", "items": {"oneOf": [_NAME, _make_ref("expected_approval")]}},
        "The calls for which a person was asked, all of them in their order, with the arguments as they were asked "
        "for; `[]` means that nobody was asked.",
    ),
    "response_contains": Key(_make_ref("phrases"), "Phrases that the final response must contain."),
    "response_excludes": Key(_make_ref("phrases"), "Phrases that the final response must not contain."),
    "response_matches": Key(_make_ref("phrases"), "Regular expressions that must be found in the final response."),
    "response_json": Key(
        {"type": ["object", "array", "string", "number", "null"], "minProperties": 1},
        "The final response must be JSON that satisfies this JSON Schema, or these values and operators.",
    ),
    "state": Key(
        {}, "The state at the end of the run (`input.state`, `input.state_probe`) must be this: values and operators."
    ),
    "state_contains": Key(
        {"type": ["object", "array"], "minProperties": 1},
        "The state at the end of the run must hold these keys, equal on their values; operators are allowed.",
    ),
    "stop_reason": Key(_NAME, "Why the run ended; `completed` unless said otherwise."),
    "model_failure": Key(
        _BOOLEAN,
        "A request to a model must fail: the case is about what the agent makes of it.",
    ),
    "scenario_instruction_used": Key(_NAME, "The instruction file that the agent must have used; `-` and `_` are one."),
    "max_model_turns": Key(_COUNT, "At most so many model turns."),
    "max_function_calls": Key(_COUNT, "At most so many function calls, failed ones included."),
    "max_identical_calls": Key(
        {"type": "integer", "minimum": 1}, "At most so many calls of one function with the same arguments: no loops."
    ),
    "max_tokens": Key(_COUNT, "At most so many tokens in all model turns together."),
    "max_cost_usd": Key(_AMOUNT, "At most this cost, in US dollars."),
    "processing_time_ms": Key(
        _AMOUNT, "At most so many milliseconds for the whole run: model, functions and the agent's own code."
    ),
    "max_overhead_ms": Key(_AMOUNT, "At most so many milliseconds in the agent's own code, model and functions aside."),
    "min_score": Key(
        {
            "oneOf": [
                _SHARE,
                {"type": "object", "properties": dict.fromkeys(SCORES, _SHARE), "additionalProperties": False},
            ]
        },
        "Calls pass by partial credit: at least this F1 (or these scores), instead of matching all of them.",
    ),
    "judge": Key(
        {"oneOf": [_make_ref("criterion"), {"type": "array", "items": _make_ref("criterion"), "minItems": 1}]},
        "Criteria in words: once all else holds, a model grades each (`--evalkit-grader`), or its recorded grades do.",
    ),
    "email_sent": Key(_BOOLEAN, "Older key: a successful `send_email` exists, or none."),
    "ticket_created": Key(_BOOLEAN, "Older key: a successful `create_ticket` exists, or none."),
    "ticket_fields": Key(
        {"type": "object", "minProperties": 1},
        "Older key: `arguments_contain` of the first successful `create_ticket`.",
    ),
    "response_body_contains": Key(
        _make_ref("phrases"),
        "Older key: phrases in the body of the last successful `send_email`, else in the response.",
    ),
    "response_body_excludes": Key(
        _make_ref("phrases"),
        "Older key: phrases that must not be in the last successful `send_email`'s body, else the response.",
    ),
}

APPROVAL_KEYS: dict[str, Key] = {
    "function_name": Key(_NAME, "The function whose call was asked about."),
    **{key: _CALL_KEYS[key] for key in ("arguments", "arguments_contain", "arguments_absent", "by", "approval")},
}

# Keys that only say how other keys are judged: a case that holds nothing else demands nothing.
MODIFIERS = frozenset({"call_order", "extra_calls", "valid_arguments", "ignored_arguments", "min_score"})
_KEYS_OF_ALL_CALLS = ("ignored_arguments",)


def list_call_keys() -> Mapping[str, Key]:
    """Return the keys of an expected call, in their order."""
    return _CALL_KEYS


def list_forbidden_keys() -> Mapping[str, Key]:
    """Return the keys of a forbidden call, in their order."""
    return _FORBIDDEN_KEYS


def list_meant_keys() -> Mapping[str, Key]:
    """Return the keys of a call that a rule or a condition speaks of, in their order."""
    return _MEANT_KEYS


def list_expected_keys() -> Mapping[str, Key]:
    """Return the keys of `expected_output`, in their order."""
    return _EXPECTED_KEYS


TEXT_ENDS = ("_contains", "_excludes")


def find_text_argument(key: str) -> str | None:
    """Return the argument that a key like `body_contains` is about; None for other keys."""
    if key.endswith(TEXT_ENDS) and key not in TEXT_ENDS:
        return key[: -len("_contains")]  # both ends are as long
    return None


def merge_turn_keys(expected: Mapping[str, Any], case_expected: object) -> Mapping[str, Any]:
    """Add the keys about all calls from the case's own `expected_output` to those of a user turn."""
    if not isinstance(case_expected, Mapping):
        return expected
    return {**{key: case_expected[key] for key in _KEYS_OF_ALL_CALLS if key in case_expected}, **expected}


# `<argument>_contains` and `<argument>_excludes`; `result_contains` is about the result, the others are misspelled.
_TEXT_KEYS = {
    "patternProperties": {"^(?!(result|arguments)_(contains|excludes)$).+_(contains|excludes)$": _make_ref("phrases")}
}


def describe_keys(table: Mapping[str, Key]) -> dict[str, Any]:
    """Return the `properties` of a JSON Schema: each key's schema with its sentence as the description."""
    return {name: {**key.schema, "description": key.doc} for name, key in table.items()}


def describe_value(operators: Iterable[str] = ()) -> dict[str, Any]:
    """Describe an expected value: JSON, or an operator, one that is built in or one of `operators`."""
    value = _make_ref("value")
    properties = {
        name: {"description": operator.doc, **({} if operator.operand_form == DATA else value)}
        for name, operator in BUILTIN_OPERATORS.items()
    }
    properties |= {f"${name}": {"description": "An operator of this project."} for name in operators}
    return {
        "description": "JSON, or an operator; `{$literal: ...}` is data whatever its keys.",
        "if": {"type": "object", "minProperties": 1, "propertyNames": {"pattern": r"^\$"}},
        "then": {"properties": properties, "propertyNames": {"enum": [*properties, LITERAL, *OPERATOR_MODIFIERS]}},
        "else": {"additionalProperties": value, "items": value},
    }


_DEFINITIONS: dict[str, dict[str, Any]] = {
    "value": describe_value(),
    "phrases": {
        "oneOf": [_NAME, {"type": "array", "items": _NAME, "minItems": 1}],
        "description": "One phrase, or a list of phrases.",
    },
    "criterion": {
        "description": "A criterion in words; as a mapping with a scale, the rule of a panel, a quote that is wanted.",
        "oneOf": [
            _NAME,
            {
                "type": "object",
                "properties": {
                    "rubric": {**_NAME, "description": "What is graded, in words."},
                    "scale": {
                        "description": "Scores from the first number to the second, such as `1..5`.",
                        "oneOf": [
                            {"type": "string", "pattern": r"^\s*-?\d+\s*\.\.\s*-?\d+\s*$"},
                            {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2},
                        ],
                    },
                    "at_least": {"type": "integer", "description": "The least score that meets the criterion."},
                    "panel": {
                        "enum": ["majority", "all"],
                        "description": "How many of several graders must say that it is met.",
                    },
                    "quote": {"type": "boolean", "description": "A grade has to quote what decided."},
                },
                "required": ["rubric"],
                "additionalProperties": False,
                "dependentRequired": {"scale": ["at_least"], "at_least": ["scale"]},
            },
            {"type": "object", "propertyNames": {"not": {"enum": list(RUBRIC_KEYS)}}, "minProperties": 1},
        ],
    },
    "times": {
        "oneOf": [
            {"type": "integer", "minimum": 1},
            {
                "type": "object",
                "properties": {"min": _COUNT, "max": {"type": "integer", "minimum": 1}},
                "additionalProperties": False,
                "minProperties": 1,
            },
        ]
    },
    "channel": _describe_choices(CHANNELS),
    "answered_by": _describe_choices(ANSWERERS),
    "approval": _describe_choices(APPROVAL_CHOICES),
    "handoffs": {
        "oneOf": [_NAME, {"type": "array", "items": _NAME}],
        "description": "`triage -> billing`, a chain of several, or the name of the target alone.",
    },
    "grounded": {"oneOf": [_BOOLEAN, {**_NAME, **NO_TEXT}, _NAMES["oneOf"][1]]},
    "expected_group": {
        "type": "object",
        "properties": describe_keys(GROUP_KEYS),
        "additionalProperties": False,
        "minProperties": 1,
        "maxProperties": 1,
    },
    "expected_item": {"oneOf": [_NAME, _make_ref("expected_call"), _make_ref("expected_group")]},
    "group": {"type": "array", "items": _make_ref("expected_item"), "minItems": 1, "maxItems": 6},
    "alternatives": {
        "type": "array",
        "items": {
            "oneOf": [
                *[_NAME, _make_ref("expected_call"), _make_ref("expected_group")],
                {"type": "array", "items": _make_ref("expected_item")},
            ]
        },
        "minItems": 1,
        "maxItems": 6,
    },
}


def _describe_call(table: Mapping[str, Key]) -> dict[str, Any]:
    """Describe a call with the keys of `table`, and those of texts in its arguments."""
    return {
        "type": "object",
        "properties": describe_keys(table),
        **_TEXT_KEYS,
        "required": ["function_name"],
        "additionalProperties": False,
    }


def build_definitions() -> dict[str, dict[str, Any]]:
    """Build what the schemas of keys refer to."""
    return {
        **_DEFINITIONS,
        "expected_call": _describe_call(list_call_keys()),
        "expected_approval": _describe_call(APPROVAL_KEYS),
        "forbidden": {"oneOf": [_NAME, _describe_call(list_forbidden_keys())]},
        "meant_call": {"oneOf": [_NAME, _describe_call(list_meant_keys())]},
    }


def _describe_one_or_more(name: str) -> dict[str, Any]:
    return {"anyOf": [_make_ref(name), {"type": "array", "items": _make_ref(name), "minItems": 1}]}


# What the schema of policies.yaml refers to, beside the definitions of keys.
POLICY_DEFINITIONS: dict[str, dict[str, Any]] = {
    "policy_calls": _describe_one_or_more("meant_call"),
    "policy_event": {
        "oneOf": [
            _make_ref("meant_call"),
            {
                "type": "object",
                "properties": {"user": {**_make_ref("value"), "description": "A message of the user that is so."}},
                "required": ["user"],
                "additionalProperties": False,
            },
        ]
    },
    "policy_events": _describe_one_or_more("policy_event"),
}
