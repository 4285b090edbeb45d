"""The compiled `expected_output`: how it judges a transcript, and the judgement that comes of it.

Of conversations, the run is judged by the case's expectation, each user turn by its own, and all as one judgement.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from evalkit.checks.absence import UNOBSERVED, KeyedDemand, is_seen_in_part, is_unseen_alone, judge_absences
from evalkit.checks.calls import ForbiddenCalls, add_problems, judge_calls, report_unmeasured
from evalkit.checks.evidence import COMPLETED, Evidence, extract_turn, find_last_turn
from evalkit.checks.expected_calls import CallResult, CallsResult, ExpectedCallList
from evalkit.checks.expected_key import RunCheck
from evalkit.checks.reasons import (
    NOT_JUDGED,
    OTHER_RANK,
    RANK,
    build_failure,
    build_failures,
    build_reason,
    build_unmeasured,
    rank,
)
from evalkit.checks.stop_reason import StopReason
from evalkit.errors import MeasurementError, ProviderError, format_path
from evalkit.jsonvalue import JsonDict
from evalkit.lazy import LazyModule, is_loaded
from evalkit.operators.late import Judging
from evalkit.records.case import Case, UserTurn
from evalkit.records.template import TemplateError
from evalkit.records.transcript import APPLICATION, RunFault, Transcript
from evalkit.records.verdict import ERROR, FAILED, PASSED, CallVerdict, CheckResult, Reason, Score
from evalkit.text.format import format_count

if TYPE_CHECKING:
    from evalkit.checks import call_origin, run_checks
    from evalkit.checks.grounded import GroundedCalls
else:
    call_origin = LazyModule("evalkit.checks.call_origin")
    run_checks = LazyModule("evalkit.checks.run_checks")

_COMPLETES = StopReason(COMPLETED, (), is_explicit=False)


class Judgement(Struct, frozen=True, kw_only=True):
    """The outcome of judging. `calls` are in the order of the trace, missing ones where they were expected."""

    status: str = PASSED
    reasons: tuple[Reason, ...] = ()
    calls: tuple[CallVerdict, ...] = ()
    checks: tuple[CheckResult, ...] = ()
    score: Score | None = None  # None where calls are not judged
    summary: str = ""
    features: JsonDict = field(default_factory=dict)  # what features say of the run


class Expectation(Struct, frozen=True):
    """Demands of a case, or of one user turn of it. Made by `compile_expectation`; picklable."""

    calls: ExpectedCallList | None = None
    forbidden: ForbiddenCalls | None = None
    grounded: GroundedCalls | None = None
    valid_arguments: bool = True
    stop_reason: StopReason = _COMPLETES
    checks: tuple[RunCheck, ...] = ()
    aliases: Mapping[str, str] = field(default_factory=dict)  # of the functions that the case declares

    @property
    def expects_model_failure(self) -> bool:
        """True if the case tests what the agent makes of a model's service that fails."""
        return self.stop_reason.stop_reason == ProviderError.code or any(
            is_loaded(run_checks) and isinstance(check, run_checks.ModelFailure) for check in self.checks
        )

    def judge(
        self,
        transcript: Transcript,
        *,
        input: object = None,
        mode: str = "run",
        user_turn: int | None = None,
    ) -> Judgement:
        """Judge a transcript. Never raises, whatever the transcript contains.

        `input` is the case's input, for references and `grounded`; None: the transcript's own. `mode` "judge" judges
        what is there: demands on the run whose evidence is missing are listed as not judged, and decide nothing.
        `user_turn`: only what belongs to that turn of the conversation (from 0) is judged.
        """
        known_calls = None
        if user_turn is not None:
            known_calls = tuple(call for call in transcript.calls if call.user_turn <= user_turn)
            transcript = extract_turn(transcript, user_turn)
        evidence = Evidence(transcript, transcript.input if input is None else input, mode, known_calls, self.aliases)
        with Judging(transcript.features) as judging:
            return self._judge_evidence(evidence, judging)

    def list_demands(self) -> list[KeyedDemand]:
        """List the demands that the case writes down."""
        demands: list[KeyedDemand | None] = [self.calls, self.forbidden, self.grounded, *self.checks]
        return [demand for demand in demands if demand is not None]

    def _judge_evidence(self, evidence: Evidence, judging: Judging) -> Judgement:
        judged = self._judge_list(evidence)
        lines, results = judged.lines, judged.results
        if any(line.call is not None and (line.call.problem or line.call.violations) for line in lines):
            results += _guard(self.stop_reason, partial(add_problems, lines, valid_arguments=self.valid_arguments))
        for call_check in (self.forbidden, self.grounded):
            if call_check is not None:
                results += _guard(call_check, partial(call_check.judge, lines, evidence))
        for check in (self.stop_reason, *self.checks):
            if not check.is_late:
                results += _guard(check, partial(check.judge, evidence))
        for problem in judging.problems:
            results.append(build_unmeasured("values", f"can't be judged: {problem}", "", evidence.mode))
        for values in tuple(judging.late.values()):
            results += values.report(evidence.mode)
        for check in self.checks:
            if check.is_late:
                results += _guard(check, partial(check.judge, evidence))
        if evidence.transcript.unobserved:
            unmet = self.calls if any(line.call is None for line in lines) else None
            results += judge_absences(self.list_demands(), evidence.transcript.unobserved, unmet)
        return build_judgement(lines, results, judged.score, evidence, self.stop_reason)

    def _judge_list(self, evidence: Evidence) -> CallsResult:
        results = []
        if self.calls is not None:
            try:
                found = judge_calls(self.calls, evidence)
                report_unmeasured(found, evidence)
                return found
            except Exception as error:
                results = [_build_broken(self.calls, error)]
        return CallsResult([CallResult(call) for call in evidence.calls], results)


def get_expectation(holder: Case | UserTurn) -> Expectation | None:
    """Return the compiled expectation of a case or user turn; None if it demands nothing."""
    return holder.expectation if isinstance(holder.expectation, Expectation) else None


def list_own_functions(expectation: Expectation | None) -> Iterator[str]:
    """Yield the functions that the application may answer, by `answered_by` of an expected call."""
    if expectation is None or expectation.calls is None or not is_loaded(call_origin):
        return
    for leaf in expectation.calls.leaves:
        if any(isinstance(check, call_origin.AnswererCheck) and APPLICATION in check.choices for check in leaf.checks):
            yield leaf.function_name


def _guard(check: KeyedDemand, judge: Callable[[], CheckResult | list[CheckResult] | None]) -> list[CheckResult]:
    try:
        result = judge()
    except TemplateError as error:
        return [build_failure(check.key, "unresolved_reference", str(error), format_path(check.path))]
    except Exception as error:
        return [_build_broken(check, error)]
    return [] if result is None else result if isinstance(result, list) else [result]


def _build_broken(check: KeyedDemand, error: Exception) -> CheckResult:
    """Build the result of a check that could not do its work: no failure of the agent, and no pass either."""
    is_measurement_error = isinstance(error, MeasurementError)
    message = str(error) if is_measurement_error else f"judging it raised {type(error).__name__}: {error}"
    return build_unmeasured(check.key, f"can't be judged: {message}", format_path(check.path), "run")


def build_judgement(
    lines: Sequence[CallResult],
    results: Sequence[CheckResult],
    score: Score | None,
    evidence: Evidence,
    stop_reason: StopReason,
) -> Judgement:
    """Draw the conclusion. Failures decide before missing evidence; a fault of the world before both."""
    fault = evidence.transcript.fault
    calls = tuple([line.to_verdict() for line in lines])
    checks = tuple(results)
    if fault is not None:
        return _build_faulted(fault, calls, checks, score, evidence, stop_reason)
    status = _decide_status(calls, checks)
    if status != PASSED:
        reasons = sort_reasons(calls, checks)
        if is_unseen_alone(reasons):
            status, reasons = ERROR, tuple(sorted(reasons, key=lambda reason: reason.code != UNOBSERVED))
    elif evidence.mode == "judge" and checks and all(result.status == NOT_JUDGED for result in checks):
        # Calls alone say nothing of what is demanded: that is no pass.
        root = stop_reason.path[:-1] if stop_reason.is_explicit else stop_reason.path
        status, score = ERROR, None
        reasons = tuple(
            build_reason("not_measured", f"{result.check}: {result.message}", format_path((*root, result.check)))
            for result in checks
        )
    else:
        return Judgement(calls=calls, checks=checks, score=score, summary=format_pass_summary(calls, checks))
    return Judgement(
        status=status, reasons=reasons, calls=calls, checks=checks, score=score, summary=format_summary(reasons)
    )


def _decide_status(calls: Sequence[CallVerdict], results: Sequence[CheckResult]) -> str:
    statuses = [*(verdict.status for verdict in calls), *(result.status for result in results)]
    return FAILED if FAILED in statuses else ERROR if ERROR in statuses else PASSED


def _build_faulted(
    fault: RunFault,
    calls: tuple[CallVerdict, ...],
    checks: tuple[CheckResult, ...],
    score: Score | None,
    evidence: Evidence,
    stop_reason: StopReason,
) -> Judgement:
    """Build the judgement of a run that ended early. After a fault of the world, missing calls are no failure."""
    reason = build_reason(fault.code, fault.message, "")
    if not fault.measured:
        bans = _select_broken_bans(calls) if is_seen_in_part(fault) else ()
        reasons = (*(ban for line in bans for result in line.results for ban in result.reasons), reason)
        status = ERROR if len(reasons) == 1 else FAILED
        made_calls = tuple(verdict for verdict in calls if verdict.call is not None)
        return Judgement(
            status=status, reasons=reasons, calls=made_calls, checks=checks, summary=format_summary(reasons)
        )
    expected = stop_reason.is_explicit and stop_reason.stop_reason == evidence.transcript.stop_reason
    shown_checks = tuple(result for result in checks if result.check != stop_reason.key or expected)
    reasons = sort_reasons(calls, shown_checks)
    if not expected:
        reasons = (reason, *reasons)
    status = _decide_status(calls, shown_checks) if expected else FAILED
    summary = format_summary(reasons) if reasons else format_pass_summary(calls, checks)
    return Judgement(status=status, reasons=reasons, calls=calls, checks=shown_checks, score=score, summary=summary)


def _select_broken_bans(calls: Sequence[CallVerdict]) -> tuple[CallVerdict, ...]:
    """Return the calls that are forbidden, each with the results that say so."""
    banned = (
        replace(line, status=FAILED, results=tuple(r for r in line.results if r.check == ForbiddenCalls.key))
        for line in calls
    )
    return tuple(line for line in banned if line.results)


def sort_reasons(calls: Sequence[CallVerdict], results: Sequence[CheckResult]) -> tuple[Reason, ...]:
    """Return all reasons, the most specific first."""
    reasons = [reason for verdict in calls for result in verdict.results for reason in result.reasons]
    reasons += [reason for result in results for reason in result.reasons]
    return tuple(sorted(reasons, key=rank))


def format_summary(reasons: Sequence[Reason]) -> str:
    """Return the first line of the first reason, and how many more there are."""
    if not reasons:
        return ""
    first = reasons[0].message.split("\n", 1)[0]
    return first if len(reasons) == 1 else f"{first} (+{len(reasons) - 1} more)"


def format_pass_summary(calls: Sequence[CallVerdict], results: Sequence[CheckResult]) -> str:
    """Return what was judged and passed, in one line."""
    count, passed = len(calls), sum(result.status == PASSED for result in results)
    suffix = f", {len(results) - passed} not judged" if passed < len(results) else ""
    return f"{format_count(count, 'call')}, {format_count(passed, 'check')} passed{suffix}"


def judge_conversation(
    transcript: Transcript,
    expectation: Expectation | None,
    turns: Sequence[Expectation | None],
    *,
    input: object = None,
) -> Judgement:
    """Judge the whole by `expectation` and each user turn by its own, and merge the judgements.

    If the turn in which the run ended expects just that end, the whole does too, unless the case says otherwise.
    """
    last = find_last_turn(transcript)
    ending = turns[last] if 0 <= last < len(turns) else None
    expectation = expectation or Expectation()
    if ending is not None and ending.stop_reason.is_explicit and not expectation.stop_reason.is_explicit:
        expectation = replace(expectation, stop_reason=ending.stop_reason)
    case_judgement = expectation.judge(transcript, input=input)
    is_unmeasured = transcript.fault is not None and not transcript.fault.measured
    if is_unmeasured and not is_seen_in_part(transcript.fault):
        return case_judgement
    parts = [
        _mark_turn(turn.judge(transcript, input=input, user_turn=number), number)
        for number, turn in enumerate(turns)
        if turn is not None
    ]
    if is_unmeasured:
        return _add_bans_of_turns(case_judgement, parts)
    return merge_judgements(case_judgement, parts) if parts else case_judgement


def _add_bans_of_turns(case_judgement: Judgement, parts: Sequence[Judgement]) -> Judgement:
    """Fail a run of which a part went unread for the bans of single turns that its calls broke."""
    banned = [replace(part, calls=_select_broken_bans(part.calls)) for part in parts]
    reasons = sort_reasons([line for part in banned for line in part.calls], ())
    reasons = tuple(reason for reason in reasons if reason not in case_judgement.reasons)
    if not reasons:
        return case_judgement
    reasons = (*reasons, *case_judgement.reasons)
    calls = _merge_calls(case_judgement, banned)
    return replace(case_judgement, status=FAILED, reasons=reasons, calls=calls, summary=format_summary(reasons))


def _mark_turn(part: Judgement, number: int) -> Judgement:
    """Add the number of the user turn to each reason that names no call."""
    if part.status == PASSED:
        return part

    def mark_reason(reason: Reason) -> Reason:
        is_of_turn = reason.call is None and reason.place and not _is_unconditional(reason)
        return replace(reason, message=f"user turn {number + 1}: {reason.message}") if is_of_turn else reason

    def mark_results(results: Iterable[CheckResult]) -> tuple[CheckResult, ...]:
        return tuple(
            replace(result, reasons=tuple(map(mark_reason, result.reasons))) if result.reasons else result
            for result in results
        )

    return replace(
        part,
        reasons=tuple(map(mark_reason, part.reasons)),
        calls=tuple(replace(line, results=mark_results(line.results)) for line in part.calls),
        checks=mark_results(part.checks),
    )


def merge_judgements(case_judgement: Judgement, parts: Sequence[Judgement]) -> Judgement:
    """Merge judgements of the same calls. A call that fails twice for one reason is reported once.

    Reasons that hold whatever is expected are found by the whole and by the turn; of demands, each has its place.
    """
    judgements = [case_judgement, *parts]
    statuses = [judgement.status for judgement in judgements]
    status = FAILED if FAILED in statuses else ERROR if ERROR in statuses else PASSED
    unique: dict[tuple[object, ...], Reason] = {}
    for reason in (reason for judgement in judgements for reason in judgement.reasons):
        place = "" if _is_unconditional(reason) else reason.place
        unique.setdefault((reason.code, reason.message, reason.call, place), reason)
    reasons = tuple(sorted(unique.values(), key=rank))
    checks = tuple(check for judgement in judgements for check in judgement.checks)
    calls = _merge_calls(case_judgement, parts)
    summary = format_summary(reasons) if status != PASSED else format_pass_summary(calls, checks)
    return Judgement(
        status=status, reasons=reasons, calls=calls, checks=checks, score=case_judgement.score, summary=summary
    )


def _is_unconditional(reason: Reason) -> bool:
    return RANK.get(reason.code, OTHER_RANK) <= RANK["unmocked_call"] or reason.code == "invalid_arguments"


def _merge_calls(case_judgement: Judgement, parts: Sequence[Judgement]) -> tuple[CallVerdict, ...]:
    """Return each call with the results of the whole and of its turn; missing calls follow those of their turn."""
    lines: list[CallVerdict] = list(case_judgement.calls)
    place = 0
    for part in parts:
        for verdict in part.calls:
            same = (i for i, line in enumerate(lines) if verdict.call is not None and line.call is verdict.call)
            index = next(same, None)
            if index is None:
                lines.insert(place, verdict)
                place += 1
                continue
            line = lines[index]
            results = (*line.results, *(result for result in verdict.results if result not in line.results))
            status = FAILED if FAILED in (line.status, verdict.status) else PASSED
            lines[index] = replace(line if line.expectation else verdict, status=status, results=results)
            place = index + 1
    return tuple(lines)


def add_results(judgement: Judgement, results: Sequence[CheckResult], fault: RunFault | None) -> Judgement:
    """Add results to a judgement that is made: each reason at the call that it names, or beside the calls. A failure
    fails it; what could not be judged makes a pass an error.
    """
    if not results:
        return judgement
    calls = list(judgement.calls)
    checks = list(judgement.checks)
    places = {line.call.index: place for place, line in enumerate(calls) if line.call is not None}
    for result in results:
        checks += [] if result.reasons else [result]
        for reason in result.reasons:
            place = None if reason.call is None else places.get(reason.call)
            part = replace(result, reasons=(reason,), message=build_failures(result.check, [reason]).message)
            if place is None:
                checks.append(part)
            else:
                line = calls[place]
                calls[place] = replace(line, status=FAILED, results=(*line.results, part))
    statuses = (judgement.status, *(result.status for result in results))
    failures = sort_reasons((), [result for result in results if result.status == FAILED])
    open_reasons = sort_reasons((), [result for result in results if result.status != FAILED])
    if fault is None:
        reasons = tuple(sorted((*judgement.reasons, *failures, *open_reasons), key=rank))
    elif fault.measured:  # a fault is the first reason, whatever its rank
        reasons = (*judgement.reasons, *failures, *open_reasons)
    else:  # a failure that is certain says more than what went unread
        reasons = (*failures, *judgement.reasons, *open_reasons)
    return replace(
        judgement,
        status=FAILED if FAILED in statuses else ERROR if ERROR in statuses else judgement.status,
        reasons=reasons,
        calls=tuple(calls),
        checks=tuple(checks),
        summary=format_summary(reasons) or judgement.summary,
    )
