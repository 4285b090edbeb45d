"""`expected_approvals`: the calls for which a person was asked, with the arguments as they were asked for."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from evalkit.checks.absence import AbsenceDemand
from evalkit.checks.evidence import Evidence
from evalkit.checks.expected_calls import ExpectedCall, ExpectedCallList
from evalkit.checks.reasons import build_failures, build_pass, build_reason, build_unmeasured
from evalkit.errors import KeyPath, format_path
from evalkit.features.approvals.records import get_approval
from evalkit.records.transcript import FunctionCall
from evalkit.records.verdict import FAILED, CheckResult, Reason
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
    """Return the evidence with the calls alone for which a person was asked, with the arguments of the request."""
    asked = ((call, approval) for call in evidence.calls if (approval := get_approval(call)) is not None)
    calls = [call if answer.asked is None else replace(call, arguments=answer.asked) for call, answer in asked]
    transcript = replace(evidence.transcript, calls=tuple(calls))
    return Evidence(transcript, evidence.input, evidence.mode, evidence.known_calls)
