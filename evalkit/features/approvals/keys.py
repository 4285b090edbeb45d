"""The keys of approvals: in `input`, in a declaration, in an expected call, in `expected_output`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evalkit.checks.call_checks import AbsentKey, ArgumentsKey, PartialArgumentsKey
from evalkit.checks.call_keys import FunctionKey, describe_call
from evalkit.checks.call_origin import AgentKey, ChoicesCheck, ChoicesKey
from evalkit.checks.evidence import Evidence
from evalkit.checks.expected_calls import ExpectedCallList
from evalkit.checks.expected_key import ONLY_A_RUN, ExpectationDraft, ExpectedKey, FailedCheck
from evalkit.checks.key_schemas import NAME, DescribedKey, Key, describe_choices, make_ref
from evalkit.checks.matching.plan import CallPlan, InOrder, Leaf
from evalkit.checks.reader import ExpectationReader
from evalkit.checks.updates import Editor, require_own
from evalkit.errors import KeyPath
from evalkit.features.approvals.records import APPROVALS, get_answer
from evalkit.features.approvals.requests import ApprovalsCheck
from evalkit.jsonvalue import JsonDict, JsonObject
from evalkit.records.template import to_literal
from evalkit.records.transcript import DENIED, FunctionCall
from evalkit.spec.case_reader import CaseKey, CaseReader

NOBODY_ASKED = "none"
CHOICES = (*APPROVALS, NOBODY_ASKED)
UNTRACED = "nothing of what a person approved"

INPUT_KEY = CaseKey(
    CaseReader.read_anything,  # read by `Approvals.compile`, which knows the declarations
    {"$ref": "#/$defs/approvals"},
    "What a person answers to calls that need approval, by function: `approve`, `deny`, `{deny: why}`, "
    "`{arguments: {...}}`, or a list of these, one for each request.",
)
FUNCTION_KEY = CaseKey(
    CaseReader.read_boolean,
    {"type": "boolean"},
    "A person must approve each call; the case answers for them (`input.approvals`).",
)


class ApprovalCheck(ChoicesCheck, frozen=True):
    """`approval`: what a person answered to the call."""

    key = "approval"
    code = "wrong_approval"
    verb = "approval"

    @staticmethod
    def get_actual(call: FunctionCall) -> str:
        return get_answer(call) or NOBODY_ASKED

    def describe(self, call: FunctionCall) -> str:
        actual = self.get_actual(call)
        return "nobody was asked for approval" if actual == NOBODY_ASKED else f"approval is '{actual}'"


class ApprovalKey(ChoicesKey):
    """`approval`. What a person denies, fails."""

    name = "approval"
    schema = make_ref("approval")
    doc = (
        "What a person must have answered to the call: `approved`, `denied`, `changed`, or `none` if nobody was asked."
    )
    check = ApprovalCheck
    forbidden_doc = "Only calls to which a person answered this are forbidden."
    meant_doc = "Only calls to which a person answered this are meant."
    definitions: Mapping[str, JsonObject] = {"approval": describe_choices(CHOICES)}
    untraced = UNTRACED

    def read_choices(self, reader: ExpectationReader, path: KeyPath, value: Any) -> tuple[str, ...]:
        return reader.read_choices(path, value, CHOICES)

    def expects_failure(self, check: ApprovalCheck) -> bool:
        return DENIED in check.choices


_WHY_NOT_LATE = "for what a person is asked is decided without a model; write it in an expected call"
REQUEST_KEYS: dict[str, DescribedKey] = {
    FunctionKey.name: Key(NAME, "The function whose call was asked about."),
    **{cls.name: cls() for cls in (ArgumentsKey, PartialArgumentsKey, AbsentKey, AgentKey, ApprovalKey)},
}


class ExpectedApprovalsKey(ExpectedKey):
    """`expected_approvals`: a list of names, or of mappings of `REQUEST_KEYS`."""

    name = "expected_approvals"
    schema: Mapping[str, Any] = {"type": "array", "items": {"oneOf": [NAME, make_ref("expected_approval")]}}
    doc = (
        "The calls for which a person was asked, all of them in their order, with the arguments as they were asked "
        "for; `[]` means that nobody was asked."
    )
    definitions: Mapping[str, JsonObject] = {"expected_approval": describe_call(REQUEST_KEYS)}
    untraced = UNTRACED
    needs_run = ONLY_A_RUN  # a person may change what was asked for

    def read(self, draft: ExpectationDraft, path: KeyPath, value: Any) -> ApprovalsCheck | None:
        if not isinstance(value, list):
            draft.reader.report_wrong(path, value, "a list of calls", "write [] if nobody is to be asked")
            return None
        calls = draft.calls
        read = [
            calls.read_demands((*path, index), item, REQUEST_KEYS, index, why_not_late=_WHY_NOT_LATE)
            for index, item in enumerate(value)
        ]
        leaves = tuple(leaf for leaf in read if leaf is not None)
        if len(leaves) < len(read):
            return None
        nodes = tuple(Leaf(leaf.id, leaf.function_name, 1, 1) for leaf in leaves)
        return ApprovalsCheck(ExpectedCallList(path, leaves, CallPlan(InOrder(nodes), "forbid")), path)

    def update(self, editor: Editor, path: KeyPath, failed: FailedCheck) -> None:
        """Write the requests for approval, with the arguments that were asked with; entries that still hold stay."""
        require_own(editor, path)
        case, transcript = failed.load_case(), failed.transcript
        checks = getattr(case.expectation, "checks", ())
        check = next((check for check in checks if isinstance(check, ApprovalsCheck)), None)
        if check is None:
            return
        items: list[object] = [
            {"function_name": call.name, "arguments": to_literal(call.arguments)} if number is None else number
            for call, number in check.match_requests(Evidence(transcript, case.input, "run", transcript.calls))
        ]
        if items:
            editor.set_items(path, items)
        else:
            editor.set(path, [])


def build_definitions() -> dict[str, JsonDict]:
    """Return what the schemas of these keys refer to."""
    keys = {"deny": NAME, "arguments": {"type": "object"}, "resume": {}}
    entry = {
        "type": "object",
        "properties": keys,
        "additionalProperties": False,
        "minProperties": 1,
        "maxProperties": 1,
    }
    forms: list[JsonDict] = [{"enum": ["approve", "deny"]}, entry]
    listed = {"type": "array", "items": {"oneOf": forms}, "minItems": 1}
    return {
        "approvals": {"type": "object", "additionalProperties": {"oneOf": [*forms, listed, {"type": "null"}]}},
    }
