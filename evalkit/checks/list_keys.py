"""Keys on all calls of a run: the expected list and how it is judged, forbidden calls, what every call must satisfy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from evalkit.checks.calls import ForbiddenCalls
from evalkit.checks.expected_calls import ExpectedCallList
from evalkit.checks.expected_key import ONLY_A_RUN, ExpectationDraft, ExpectedKey, FailedCheck
from evalkit.checks.key_schemas import BOOLEAN, NAMES, SHARE, make_ref
from evalkit.checks.read_calls import SequenceReader, read_forbidden
from evalkit.checks.reader import find_declared_arguments, list_declared_values
from evalkit.errors import KeyPath, did_you_mean
from evalkit.lazy import LazyModule

if TYPE_CHECKING:
    from evalkit.checks import grounded
    from evalkit.checks.grounded import GroundedCalls
    from evalkit.checks.updates import Editor
else:
    grounded = LazyModule("evalkit.checks.grounded")

CALL_ORDERS = ("strict", "any")
EXTRA_CALLS = ("forbid", "allow")
SCORES = ("precision", "recall", "f1", "argument_accuracy")


class ExpectedCallsKey(ExpectedKey):
    """`expected_function_calls`. `--evalkit-update` rewrites its calls one by one, by their own keys."""

    name = "expected_function_calls"
    schema: Mapping[str, Any] = {"type": "array", "items": make_ref("expected_item")}
    doc = "The calls that the agent must make; `[]` means no call at all, absent means that calls are not judged."
    looks_at_arguments = False

    def read(self, draft: ExpectationDraft, path: KeyPath, value: Any) -> ExpectedCallList | None:
        sequence = SequenceReader(draft.reader, draft.calls)
        plan = sequence.read_plan(path, value, in_order=draft.in_order, extras=draft.allows_extras)
        if plan is None:
            return None
        leaves = tuple(sequence.leaves)
        return ExpectedCallList(path, leaves, plan, sequence.groups, draft.min_score)

    def update(self, editor: Editor, path: KeyPath, failed: FailedCheck) -> None:
        """Leave it to the keys of its calls."""


class CallOrderKey(ExpectedKey):
    """`call_order`."""

    name = "call_order"
    schema: Mapping[str, Any] = {"enum": list(CALL_ORDERS)}
    doc = "`strict` (default): in the order of the list; `any`: in any order."
    is_modifier = True
    looks_at_arguments = False

    def read(self, draft: ExpectationDraft, path: KeyPath, value: Any) -> None:
        draft.in_order = draft.reader.read_choice(path, value, CALL_ORDERS) != "any"


class ExtraCallsKey(ExpectedKey):
    """`extra_calls`."""

    name = "extra_calls"
    schema: Mapping[str, Any] = {"enum": list(EXTRA_CALLS)}
    doc = "`forbid` (default): no call beyond the list; `allow`: others may be made as well."
    is_modifier = True
    looks_at_arguments = False

    def read(self, draft: ExpectationDraft, path: KeyPath, value: Any) -> None:
        draft.allows_extras = draft.reader.read_choice(path, value, EXTRA_CALLS) == "allow"


class ForbiddenCallsKey(ExpectedKey):
    """`forbidden_function_calls`."""

    name = "forbidden_function_calls"
    schema: Mapping[str, Any] = {"oneOf": [make_ref("forbidden"), {"type": "array", "items": make_ref("forbidden")}]}
    doc = "Calls that must not be attempted; failed attempts count."
    looks_at_arguments = False

    def read(self, draft: ExpectationDraft, path: KeyPath, value: Any) -> ForbiddenCalls | None:
        return read_forbidden(draft.calls, path, value)


class GroundedCallsKey(ExpectedKey):
    """`grounded`."""

    name = "grounded"
    schema = make_ref("grounded")
    doc = "Arguments of every call that must be traceable to the input or to an earlier result."

    def read(self, draft: ExpectationDraft, path: KeyPath, value: Any) -> GroundedCalls | None:
        reader = draft.reader
        names = grounded.read_grounded(reader, path, value)
        if names is None:
            return None
        declared = reader.declarations
        argument_sets = [find_declared_arguments(declaration) for declaration in declared.values()]
        if declared and None not in argument_sets:
            arguments = sorted(set().union(*(names or () for names in argument_sets)))
            for name in names:
                if name not in arguments:
                    hint = did_you_mean(name, arguments)
                    message = f"{reader.format_place(path)}: no function has an argument '{name}'{hint}"
                    reader.add_problem(path, message, "unknown_argument")
        values = tuple((name, list_declared_values(declaration)) for name, declaration in declared.items())
        return grounded.GroundedCalls(names, path, values)


class ValidArgumentsKey(ExpectedKey):
    """`valid_arguments`."""

    name = "valid_arguments"
    schema = BOOLEAN
    doc = "Every call's arguments must satisfy the function's declared schema; `true` unless switched off."
    is_modifier = True

    def read(self, draft: ExpectationDraft, path: KeyPath, value: Any) -> None:
        draft.valid_arguments = draft.reader.read_boolean(path, value) is not False


class IgnoredArgumentsKey(ExpectedKey):
    """`ignored_arguments`."""

    name = "ignored_arguments"
    schema = NAMES
    doc = "Arguments that any call may be sent or not, with any value, where `arguments` does not name them."
    is_modifier = True
    in_every_turn = True

    def read(self, draft: ExpectationDraft, path: KeyPath, value: Any) -> None:
        draft.ignored_arguments = draft.reader.read_names(path, value) or ()


class MinScoreKey(ExpectedKey):
    """`min_score`: the least F1, or the least of several scores."""

    name = "min_score"
    schema: Mapping[str, Any] = {
        "oneOf": [
            SHARE,
            {"type": "object", "properties": dict.fromkeys(SCORES, SHARE), "additionalProperties": False},
        ]
    }
    doc = "Calls pass by partial credit: at least this F1 (or these scores), instead of matching all of them."
    is_modifier = True
    needs_run = ONLY_A_RUN

    def read(self, draft: ExpectationDraft, path: KeyPath, value: Any) -> None:
        reader = draft.reader
        scores = value if isinstance(value, dict) else {"f1": value}
        if not scores:
            reader.report_wrong(path, value, "a number from 0 to 1, or a mapping of scores to such numbers")
        minimums = []
        for name, score in scores.items():
            if name not in SCORES:
                reader.report_unknown_key(path, name, SCORES)
                continue
            score_path = (*path, name) if isinstance(value, dict) else path
            minimum = reader.read_number(score_path, score, minimum=0, maximum=1)
            if minimum is not None:
                minimums.append((name, minimum))
        draft.min_score = tuple(minimums)


KEYS = (
    ExpectedCallsKey(),
    CallOrderKey(),
    ExtraCallsKey(),
    ForbiddenCallsKey(),
    GroundedCallsKey(),
    ValidArgumentsKey(),
    IgnoredArgumentsKey(),
    MinScoreKey(),
)
