"""The keys of `expected_output`, of an expected call and of a group: for each a JSON Schema and one sentence.

The tables drive three things that must never drift apart: the unknown-key messages, the JSON Schema for editors
and docs/expectations.md. Schemas refer to what `build_definitions` returns as ``#/$defs/<name>``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from evalkit.checks.call_checks import AbsentKey, ArgumentsKey, PartialArgumentsKey
from evalkit.checks.call_keys import TEXT_KEY, list_call_keys, list_forbidden_keys, list_meant_keys
from evalkit.checks.call_origin import AgentKey, ApprovalKey
from evalkit.checks.key_schemas import AMOUNT, BOOLEAN, COUNT, NAME, NAMES, SHARE, make_ref
from evalkit.jsonvalue import JsonObject
from evalkit.model.rubric import RUBRIC_KEYS
from evalkit.operators.base import DATA, LITERAL
from evalkit.operators.base import MODIFIERS as OPERATOR_MODIFIERS
from evalkit.operators.builtin import BUILTIN_OPERATORS


class DescribedKey(Protocol):
    """What schemas and pages tell of a key."""

    @property
    def schema(self) -> JsonObject: ...

    @property
    def doc(self) -> str: ...


class Key(NamedTuple):
    """A key: the JSON Schema of its value, and one sentence of documentation."""

    schema: Mapping[str, Any]
    doc: str


CALL_ORDERS = ("strict", "any")
EXTRA_CALLS = ("forbid", "allow")
BUDGETS = (
    *("max_model_turns", "max_function_calls", "max_tokens"),
    *("max_cost_usd", "processing_time_ms", "max_overhead_ms"),
)
SCORES = ("precision", "recall", "f1", "argument_accuracy")

GROUP_KEYS: dict[str, Key] = {
    "in_order": Key(make_ref("group"), "These calls in this order; inside `any_order`, chains may interleave."),
    "any_order": Key(make_ref("group"), "These calls in any order."),
    "one_of": Key(make_ref("alternatives"), "Exactly one of these alternatives, each a call or a list of calls."),
    "in_parallel": Key(make_ref("group"), "These calls, all in one model turn."),
}

POLICY_KEYS: dict[str, Key] = {
    "description": Key({"type": "string"}, "What the policy is for; it stands in the report."),
    "never": Key(make_ref("policy_calls"), "These calls must not be made; attempts count."),
    "at_most": Key(COUNT, "At most so many of the calls under `calls`; attempts count."),
    "calls": Key(make_ref("policy_calls"), "The calls that `at_most` limits."),
    "must": Key(make_ref("policy_calls"), "One of these calls must be made, and succeed."),
    "before": Key(make_ref("policy_events"), "The policy holds up to the first of these; without one, to the end."),
    "until": Key(make_ref("policy_events"), "The same as `before`; it reads better behind `after`."),
    "after": Key(make_ref("policy_events"), "The policy holds after each of these; without it, from the beginning."),
    "for_each": Key(
        {"oneOf": [*NAMES["oneOf"], {"type": "object", "additionalProperties": NAMES, "minProperties": 1}]},
        "The policy holds for each value of this argument by itself; `{function: argument}` where names differ.",
    ),
}

_EXPECTED_KEYS: dict[str, Key] = {
    "expected_function_calls": Key(
        {"type": "array", "items": make_ref("expected_item")},
        "The calls that the agent must make; `[]` means no call at all, absent means that calls are not judged.",
    ),
    "call_order": Key(
        {"enum": list(CALL_ORDERS)}, "`strict` (default): in the order of the list; `any`: in any order."
    ),
    "extra_calls": Key(
        {"enum": list(EXTRA_CALLS)}, "`forbid` (default): no call beyond the list; `allow`: others may be made as well."
    ),
    "forbidden_function_calls": Key(
        {"oneOf": [make_ref("forbidden"), {"type": "array", "items": make_ref("forbidden")}]},
        "Calls that must not be attempted; failed attempts count.",
    ),
    "grounded": Key(
        make_ref("grounded"), "Arguments of every call that must be traceable to the input or to an earlier result."
    ),
    "valid_arguments": Key(
        BOOLEAN, "Every call's arguments must satisfy the function's declared schema; `true` unless switched off."
    ),
    "ignored_arguments": Key(
        NAMES, "Arguments that any call may be sent or not, with any value, where `arguments` does not name them."
    ),
    "final_function_call": Key(NAME, "The function that must be called last."),
    "expected_handoffs": Key(
        make_ref("handoffs"),
        "The hand-offs from agent to agent, all of them in their order: `[triage -> billing]`; `[]` means none.",
    ),
    "expected_delegations": Key(
        make_ref("handoffs"),
        "The agents that agents have asked, as a tool or inside one, all of them in their order: `[desk -> expert]`.",
    ),
    "expected_approvals": Key(
        {"type": "array", "items": {"oneOf": [NAME, make_ref("expected_approval")]}},
        "The calls for which a person was asked, all of them in their order, with the arguments as they were asked "
        "for; `[]` means that nobody was asked.",
    ),
    "response_contains": Key(make_ref("phrases"), "Phrases that the final response must contain."),
    "response_excludes": Key(make_ref("phrases"), "Phrases that the final response must not contain."),
    "response_matches": Key(make_ref("phrases"), "Regular expressions that must be found in the final response."),
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
    "stop_reason": Key(NAME, "Why the run ended; `completed` unless said otherwise."),
    "model_failure": Key(
        BOOLEAN,
        "A request to a model must fail: the case is about what the agent makes of it.",
    ),
    "scenario_instruction_used": Key(NAME, "The instruction file that the agent must have used; `-` and `_` are one."),
    "max_model_turns": Key(COUNT, "At most so many model turns."),
    "max_function_calls": Key(COUNT, "At most so many function calls, failed ones included."),
    "max_identical_calls": Key(
        {"type": "integer", "minimum": 1}, "At most so many calls of one function with the same arguments: no loops."
    ),
    "max_tokens": Key(COUNT, "At most so many tokens in all model turns together."),
    "max_cost_usd": Key(AMOUNT, "At most this cost, in US dollars."),
    "processing_time_ms": Key(
        AMOUNT, "At most so many milliseconds for the whole run: model, functions and the agent's own code."
    ),
    "max_overhead_ms": Key(AMOUNT, "At most so many milliseconds in the agent's own code, model and functions aside."),
    "min_score": Key(
        {
            "oneOf": [
                SHARE,
                {"type": "object", "properties": dict.fromkeys(SCORES, SHARE), "additionalProperties": False},
            ]
        },
        "Calls pass by partial credit: at least this F1 (or these scores), instead of matching all of them.",
    ),
    "judge": Key(
        {"oneOf": [make_ref("criterion"), {"type": "array", "items": make_ref("criterion"), "minItems": 1}]},
        "Criteria in words: once all else holds, a model grades each (`--evalkit-grader`), or its recorded grades do.",
    ),
    "email_sent": Key(BOOLEAN, "Older key: a successful `send_email` exists, or none."),
    "ticket_created": Key(BOOLEAN, "Older key: a successful `create_ticket` exists, or none."),
    "ticket_fields": Key(
        {"type": "object", "minProperties": 1},
        "Older key: `arguments_contain` of the first successful `create_ticket`.",
    ),
    "response_body_contains": Key(
        make_ref("phrases"),
        "Older key: phrases in the body of the last successful `send_email`, else in the response.",
    ),
    "response_body_excludes": Key(
        make_ref("phrases"),
        "Older key: phrases that must not be in the last successful `send_email`'s body, else the response.",
    ),
}

APPROVAL_KEYS: dict[str, DescribedKey] = {
    "function_name": Key(NAME, "The function whose call was asked about."),
    **{cls.name: cls() for cls in (ArgumentsKey, PartialArgumentsKey, AbsentKey, AgentKey, ApprovalKey)},
}

# Keys that only say how other keys are judged: a case that holds nothing else demands nothing.
MODIFIERS = frozenset({"call_order", "extra_calls", "valid_arguments", "ignored_arguments", "min_score"})
_KEYS_OF_ALL_CALLS = ("ignored_arguments",)


def list_expected_keys() -> Mapping[str, Key]:
    """Return the keys of `expected_output`, in their order."""
    return _EXPECTED_KEYS


def merge_turn_keys(expected: Mapping[str, Any], case_expected: object) -> Mapping[str, Any]:
    """Add the keys about all calls from the case's own `expected_output` to those of a user turn."""
    if not isinstance(case_expected, Mapping):
        return expected
    return {**{key: case_expected[key] for key in _KEYS_OF_ALL_CALLS if key in case_expected}, **expected}


def describe_keys(table: Mapping[str, DescribedKey], sentence: str = "doc") -> dict[str, Any]:
    """Return the `properties` of a JSON Schema: each key's schema with its sentence as the description."""
    return {name: {**key.schema, "description": getattr(key, sentence)} for name, key in table.items()}


def describe_value(operators: Iterable[str] = ()) -> dict[str, Any]:
    """Describe an expected value: JSON, or an operator, one that is built in or one of `operators`."""
    value = make_ref("value")
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
        "oneOf": [NAME, {"type": "array", "items": NAME, "minItems": 1}],
        "description": "One phrase, or a list of phrases.",
    },
    "criterion": {
        "description": "A criterion in words; as a mapping with a scale, the rule of a panel, a quote that is wanted.",
        "oneOf": [
            NAME,
            {
                "type": "object",
                "properties": {
                    "rubric": {**NAME, "description": "What is graded, in words."},
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
    "handoffs": {
        "oneOf": [NAME, {"type": "array", "items": NAME}],
        "description": "`triage -> billing`, a chain of several, or the name of the target alone.",
    },
    "expected_group": {
        "type": "object",
        "properties": describe_keys(GROUP_KEYS),
        "additionalProperties": False,
        "minProperties": 1,
        "maxProperties": 1,
    },
    "expected_item": {"oneOf": [NAME, make_ref("expected_call"), make_ref("expected_group")]},
    "group": {"type": "array", "items": make_ref("expected_item"), "minItems": 1, "maxItems": 6},
    "alternatives": {
        "type": "array",
        "items": {
            "oneOf": [
                *[NAME, make_ref("expected_call"), make_ref("expected_group")],
                {"type": "array", "items": make_ref("expected_item")},
            ]
        },
        "minItems": 1,
        "maxItems": 6,
    },
}


def _describe_call(table: Mapping[str, DescribedKey], sentence: str = "doc") -> dict[str, Any]:
    """Describe a call with the keys of `table`, and those of texts in its arguments."""
    return {
        "type": "object",
        "properties": describe_keys(table, sentence),
        "patternProperties": {TEXT_KEY.pattern: TEXT_KEY.schema},
        "required": ["function_name"],
        "additionalProperties": False,
    }


def build_definitions() -> dict[str, Any]:
    """Build what the schemas of keys refer to."""
    own = (key.definitions for key in list_call_keys().values())
    return {
        **_DEFINITIONS,
        **{name: schema for definitions in own for name, schema in definitions.items()},
        "expected_call": _describe_call(list_call_keys()),
        "expected_approval": _describe_call(APPROVAL_KEYS),
        "forbidden": {"oneOf": [NAME, _describe_call(list_forbidden_keys(), "forbidden_doc")]},
        "meant_call": {"oneOf": [NAME, _describe_call(list_meant_keys(), "meant_doc")]},
    }


def _describe_one_or_more(name: str) -> dict[str, Any]:
    return {"anyOf": [make_ref(name), {"type": "array", "items": make_ref(name), "minItems": 1}]}


# What the schema of policies.yaml refers to, beside the definitions of keys.
POLICY_DEFINITIONS: dict[str, dict[str, Any]] = {
    "policy_calls": _describe_one_or_more("meant_call"),
    "policy_event": {
        "oneOf": [
            make_ref("meant_call"),
            {
                "type": "object",
                "properties": {"user": {**make_ref("value"), "description": "A message of the user that is so."}},
                "required": ["user"],
                "additionalProperties": False,
            },
        ]
    },
    "policy_events": _describe_one_or_more("policy_event"),
}
