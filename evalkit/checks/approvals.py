"""`expected_approvals`: the calls for which a person was asked, with the arguments as they were asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from evalkit.checks.absence import AbsenceDemand
from evalkit.checks.call_checks import AbsentKey, ArgumentsKey, PartialArgumentsKey
from evalkit.checks.call_keys import FunctionKey, describe_call
from evalkit.checks.call_origin import AgentKey, ApprovalKey
from evalkit.checks.evidence import Evidence
from evalkit.checks.expected_calls import ExpectedCall, ExpectedCallList
from evalkit.checks.expected_key import ONLY_A_RUN, ExpectationDraft, ExpectedKey, FailedCheck
from evalkit.checks.key_schemas import NAME, DescribedKey, Key, make_ref
from evalkit.checks.matching.plan import CallPlan, InOrder, Leaf
from evalkit.checks.reasons import build_failures, build_pass, build_reason, build_unmeasured
from evalkit.checks.updates import Editor, require_own
from evalkit.errors import KeyPath, format_path
from evalkit.jsonvalue import JsonObject
from evalkit.model.template import to_literal
from evalkit.model.transcript import FunctionCall
from evalkit.model.verdict import FAILED, CheckResult, Reason
from evalkit.text.format import format_count


class ApprovalsCheck(AbsenceDemand, Struct, frozen=True):
    """The expected requests for approval, in their order."""

    expected: ExpectedCallList
    path: KeyPath

    key = "expected_approvals"

    def judge(self, evidence: Evidence) -> CheckResult:
        """Assign the requests to the list as calls are assigned to theirs."""
        requests = _extract_requests(evidence)
        calls = requests.calls
        if not calls and evidence.mode == "judge":
            return build_unmeasured(self.key, "not judged: calls alone do not tell of approvals", "", "judge")
        leaves = self.expected.bind(requests)
        assignment = self.expected.solve(leaves, requests)
        if assignment.satisfied:
            words = f"{format_count(len(calls), 'request')}, as expected" if calls else "nobody was asked"
            return build_pass(self.key, words)
        reasons: list[Reason] = []
        for pair in (*assignment.pairs, *assignment.wrong_order):
            results = leaves[pair.leaf_id].report_results(calls[pair.actual_index], requests)
            reasons += [reason for result in results if result.status == FAILED for reason in result.reasons]
        for pair in assignment.wrong_order:
            reasons.append(self._build_reason("asked out of order", leaves[pair.leaf_id], calls[pair.actual_index]))
        for leaf_id, _ in assignment.missing:
            leaf = leaves[leaf_id]
            reasons.append(self._build_reason(f"nobody was asked to approve {leaf.describe()}", leaf))
        reasons += [
            self._build_reason("asked for approval, which is not expected", None, calls[index])
            for index in assignment.extra
        ]
        return build_failures(self.key, reasons)

    def match_requests(self, evidence: Evidence) -> list[tuple[FunctionCall, int | None]]:
        """Return each request with the number of the entry that it meets, in their order; None if it meets none."""
        requests = _extract_requests(evidence)
        leaves = self.expected.bind(requests)
        matched: list[tuple[FunctionCall, int | None]] = []
        start = 0
        for call in requests.calls:
            number = next((n for n in range(start, len(leaves)) if leaves[n].is_met_by(call, requests)), None)
            start = start if number is None else number + 1
            matched.append((call, number))
        return matched

    def _build_reason(self, message: str, leaf: ExpectedCall | None, call: FunctionCall | None = None) -> Reason:
        place = format_path(self.path) if leaf is None else leaf.place
        return build_reason("wrong_approval", message, place, call=call)


def _extract_requests(evidence: Evidence) -> Evidence:
    """Return the evidence with the calls alone for which a person was asked."""
    calls = tuple(_restore_asked(call) for call in evidence.calls if call.approval is not None)
    transcript = replace(evidence.transcript, calls=calls)
    return Evidence(transcript, evidence.input, evidence.mode, evidence.known_calls)


def _restore_asked(call: FunctionCall) -> FunctionCall:
    """Return the call with the arguments that the agent asked with."""
    is_changed = call.approval is not None and call.approval.asked is not None
    return replace(call, arguments=call.approval.asked) if is_changed and call.approval is not None else call


_NO_JUDGE = "for what a person is asked is decided without a model; write it in an expected call"
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
    untraced = ApprovalKey.untraced
    needs_run = ONLY_A_RUN  # a person may change what was asked for

    def read(self, draft: ExpectationDraft, path: KeyPath, value: Any) -> ApprovalsCheck | None:
        if not isinstance(value, list):
            draft.reader.report_wrong(path, value, "a list of calls", "write [] if nobody is to be asked")
            return None
        calls = draft.calls
        read = [
            calls.read_demands((*path, index), item, REQUEST_KEYS, index, no_judge=_NO_JUDGE)
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
