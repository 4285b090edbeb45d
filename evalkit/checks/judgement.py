"""The outcome of judging: status, reasons with the most specific first, and one line that sums them up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct, field

from evalkit.checks.evidence import Evidence
from evalkit.checks.expected_calls import ExpectedCall
from evalkit.checks.reasons import NOT_JUDGED, build_run_reason, format_place, rank
from evalkit.checks.run_checks import StopReason
from evalkit.errors import KeyPath
from evalkit.model.transcript import FunctionCall, RunFault
from evalkit.model.verdict import ERROR, FAILED, PASSED, CallVerdict, CheckResult, Reason, Score

# One line of the trace in the making: an actual call, or one that is missing, and what was found of it so far.


class CallResult(Struct):
    """What becomes a CallVerdict. `leaf` is the expected call that it was held against."""

    call: FunctionCall | None
    leaf: ExpectedCall | None = None
    results: tuple[CheckResult, ...] = ()

    def add(self, *results: CheckResult) -> None:
        self.results += results

    def to_verdict(self) -> CallVerdict:
        status = PASSED
        for result in self.results:
            if result.status == FAILED:
                status = FAILED
        leaf = self.leaf
        if leaf is None:
            return CallVerdict(call=self.call, status=status, results=self.results)
        return CallVerdict(
            call=self.call,
            status=status,
            expectation=leaf.place,
            expected_name=leaf.function_name,
            results=self.results,
        )


class CallsResult(Struct):
    """What the expected calls came to. `drafts` are in the order of the trace; `results` are about the whole list."""

    call_results: list[CallResult]
    results: list[CheckResult] = field(default_factory=list)
    score: Score | None = None


def list_unjudged(calls: Iterable[FunctionCall]) -> list[CallResult]:
    """Drafts of calls that no expectation is held against."""
    return [CallResult(call) for call in calls]


class Judgement(Struct, frozen=True, kw_only=True):
    """What a transcript came to. `calls` are in the order of the trace, missing ones where they were expected."""

    status: str = PASSED
    reasons: tuple[Reason, ...] = ()
    calls: tuple[CallVerdict, ...] = ()
    checks: tuple[CheckResult, ...] = ()
    score: Score | None = None  # None where calls are not judged
    summary: str = ""


def build_judgement(
    drafts: Sequence[CallResult],
    results: Sequence[CheckResult],
    score: Score | None,
    evidence: Evidence,
    stop_reason: StopReason,
) -> Judgement:
    """Draw the conclusion. Failures decide before missing evidence; a fault of the world before both."""
    fault = evidence.transcript.fault
    calls = tuple([draft.to_verdict() for draft in drafts])
    if fault is not None:
        return _build_faulted(fault, calls, results, score, evidence, stop_reason)
    status = PASSED
    for verdict in calls:
        if verdict.status != PASSED:
            status = FAILED
    for result in results:
        if result.status == FAILED:
            status = FAILED
        elif result.status == ERROR and status == PASSED:
            status = ERROR
    if status == PASSED:
        if evidence.mode == "judge" and results and all(result.status == NOT_JUDGED for result in results):
            return _build_nothing_judged(
                calls, results, stop_reason.path[:-1] if stop_reason.is_explicit else stop_reason.path
            )
        return Judgement(calls=calls, checks=tuple(results), score=score, summary=format_pass_summary(calls, results))
    reasons = sort_reasons(calls, results)
    return Judgement(
        status=status, reasons=reasons, calls=calls, checks=tuple(results), score=score, summary=format_summary(reasons)
    )


def _build_nothing_judged(calls: tuple[CallVerdict, ...], results: Sequence[CheckResult], root: KeyPath) -> Judgement:
    """Calls alone tell nothing of what is demanded below `root`: that is no pass."""
    places = [(result, format_place((*root, result.check))) for result in results]
    reasons = tuple(
        [build_run_reason("not_measured", f"{result.check}: {result.message}", place) for result, place in places]
    )
    return Judgement(status=ERROR, reasons=reasons, calls=calls, checks=tuple(results), summary=format_summary(reasons))


def _build_faulted(
    fault: RunFault,
    calls: tuple[CallVerdict, ...],
    results: Sequence[CheckResult],
    score: Score | None,
    evidence: Evidence,
    stop_reason: StopReason,
) -> Judgement:
    """A run that ended early. If the world is to blame, what is missing is nobody's failure."""
    expected = stop_reason.is_explicit and stop_reason.stop_reason == evidence.transcript.stop_reason
    reason = build_run_reason(fault.code, fault.message, "")
    if not fault.measured:
        calls_made = tuple(verdict for verdict in calls if verdict.call is not None)
        return Judgement(
            status=ERROR, reasons=(reason,), calls=calls_made, checks=tuple(results), summary=format_summary((reason,))
        )
    other_results = [result for result in results if result.check != stop_reason.key or expected]
    reasons = sort_reasons(calls, other_results)
    if not expected:
        reasons = (reason, *reasons)
    statuses = [*(verdict.status for verdict in calls), *(result.status for result in other_results)]
    failed = not expected or FAILED in statuses
    status = FAILED if failed else ERROR if ERROR in statuses else PASSED
    summary = format_summary(reasons) if reasons else format_pass_summary(calls, results)
    return Judgement(
        status=status, reasons=reasons, calls=calls, checks=tuple(other_results), score=score, summary=summary
    )


def sort_reasons(calls: Sequence[CallVerdict], results: Sequence[CheckResult]) -> tuple[Reason, ...]:
    """Every reason once, the most specific first."""
    reasons = [reason for verdict in calls for result in verdict.results for reason in result.reasons]
    reasons += [reason for result in results for reason in result.reasons]
    return tuple(sorted(reasons, key=rank))


def format_summary(reasons: Sequence[Reason]) -> str:
    """The first reason's first line, and how many more there are."""
    if not reasons:
        return ""
    first = reasons[0].message.split("\n", 1)[0]
    return first if len(reasons) == 1 else f"{first} (+{len(reasons) - 1} more)"


def format_pass_summary(calls: Sequence[CallVerdict], results: Sequence[CheckResult]) -> str:
    """What was judged and held, in one line."""
    count, passed = len(calls), len(results)
    for result in results:
        if result.status != PASSED:
            passed -= 1
    suffix = f", {len(results) - passed} not judged" if passed < len(results) else ""
    return f"{count} call{'' if count == 1 else 's'}, {passed} check{'' if passed == 1 else 's'} passed{suffix}"
