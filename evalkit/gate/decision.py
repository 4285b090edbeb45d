"""All rules applied to a run, and the decision they add up to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

from evalkit.errors import UsageError
from evalkit.gate.outcomes import CaseCounts, CaseOutcome, build_outcome, count_outcomes
from evalkit.gate.rules import RULES, GateEvidence
from evalkit.model.run import MET, MISSED, NOT_MEASURED, GateDecision, Policy, Run
from evalkit.stats.intervals import clean_runs_needed, wilson
from evalkit.text.format import format_case_count, format_rate, join_names, parse_percentage

EXIT_STATUS = {MET: 0, MISSED: 1, NOT_MEASURED: 6}
_WEIGHT = (MISSED, NOT_MEASURED, MET)


def decide(run: Run, policy: Policy, baseline: Run | None = None) -> GateDecision:
    """Whether `run` meets `policy`: status, reasons in words (the deciding ones first), exit status 0, 1 or 6.

    `baseline` is an earlier run: what changed is in `facts`, and `policy.no_regressions` is judged against it.
    Raises UsageError for a policy that makes no sense, and for `no_regressions` without a baseline.
    """
    return decide_outcomes(
        [build_outcome(verdict) for verdict in run.verdicts],
        policy,
        selected=run.selected,
        collected=run.collected,
        part=bool(run.metadata.get("part")),
        shard=run.shard,
        total=None if run.selection is None else run.selection.count,
        baseline=None if baseline is None else [build_outcome(verdict) for verdict in baseline.verdicts],
    )


def decide_outcomes(
    outcomes: Sequence[CaseOutcome],
    policy: Policy,
    *,
    selected: Sequence[str] = (),
    collected: int = 0,
    part: bool = False,
    shard: str | None = None,
    total: int | None = None,
    baseline: Sequence[CaseOutcome] | None = None,
) -> GateDecision:
    """`decide`, from outcomes alone. A case that is told twice counts as it was told last.

    `part`: there are cases that nobody looked at, so that none can be said to be missing. Of a shard, `whole` is the
    number of cases that were split; those of the other shards may still pass.
    """
    if policy.max_errors < 0:
        raise UsageError(f"max_errors: {policy.max_errors} is negative; 0 allows none")
    outcome_by_id = {outcome.case_id: outcome for outcome in outcomes}
    ids = tuple(dict.fromkeys((*selected, *outcome_by_id)))
    elsewhere = 0 if shard is None or total is None else max(total - len(ids), 0)
    evidence = GateEvidence(
        outcomes=outcome_by_id,
        selected=ids,
        counts=count_outcomes(outcome_by_id, ids, elsewhere),
        policy=policy,
        collected=max(collected, len(ids)),
        part=part,
        shard=shard,
        baseline=None if baseline is None else {outcome.case_id: outcome for outcome in baseline},
    )
    findings = [finding for rule in RULES for finding in rule(evidence)]
    status = next((status for status in _WEIGHT if any(result == status for result, _ in findings)), MET)
    return GateDecision(
        status=status,
        reasons=tuple(text for weight in _WEIGHT for result, text in findings if result == weight),
        exit_status=EXIT_STATUS[status],
        facts=_collect_facts(evidence),
    )


def _collect_facts(evidence: GateEvidence) -> dict[str, Any]:
    counts, rate = evidence.counts, evidence.counts.compute_rate()
    facts: dict[str, Any] = {
        "collected": evidence.collected,
        "selected": len(evidence.selected),
        "passed": len(counts.passed),
        "failed": len(counts.failed),
        "errors": len(counts.errors),
        "no_verdict": len(counts.unjudged),
        "skipped": len(counts.skipped),
        "quarantined": len(counts.quarantined),
        "pass_rate": None if rate is None else float(rate),
        "notes": list(_list_notes(evidence)),
    }
    if counts.measured:
        facts["interval"] = [100 * bound for bound in wilson(len(counts.passed), counts.measured)]
    if evidence.baseline is not None:
        from evalkit.gate.comparison import describe_significance, find_changes

        facts["changes"] = find_changes(evidence, evidence.baseline)
        facts["how_sure"] = list(describe_significance(evidence, evidence.baseline))
    return facts


def _list_notes(evidence: GateEvidence) -> Iterator[str]:
    """What a reader should know beside the reasons, a line each."""
    counts = evidence.counts
    if len(evidence.selected) < evidence.collected:
        yield f"over {len(evidence.selected)} of {evidence.collected} collected"
    if counts.measured:
        yield _format_interval(counts, parse_percentage(evidence.policy.min_pass_rate))
    if counts.failed:
        yield f"failed: {join_names(counts.failed)}"
    yield from _list_repeat_rates(evidence)
    yield from _list_unsteady(evidence)
    hand_written = sum(outcome.hand_written for outcome in evidence.list_outcomes())
    if hand_written:
        verb = "replays a hand-written cassette" if hand_written == 1 else "replay hand-written cassettes"
        yield f"{format_case_count(hand_written)} {verb}, no model's own answers"
    if counts.skipped:
        yield f"skipped: {join_names(counts.skipped)}"
    if counts.quarantined:
        yield f"quarantined: {join_names(counts.quarantined)}"
    if evidence.baseline is not None:
        from evalkit.gate.comparison import describe_significance, find_changes

        for change, ids in find_changes(evidence, evidence.baseline).items():
            if ids:
                yield f"{change.replace('_', ' ')}: {join_names(ids)}"
        yield from describe_significance(evidence, evidence.baseline)


def _format_interval(counts: CaseCounts, target: Fraction) -> str:
    low, high = (format_rate(Fraction(bound) * 100) for bound in wilson(len(counts.passed), counts.measured))
    text = f"95 % interval of the pass rate: {low} to {high} ({format_case_count(counts.measured)})"
    if 0 < target < 100:
        text += f"; {clean_runs_needed(target / 100)} clean runs would show {format_rate(target)}"
    return text


def _list_unsteady(evidence: GateEvidence) -> Iterator[str]:
    repeated = [o for i in evidence.selected if (o := evidence.outcomes.get(i)) is not None and o.runs_measured > 1]
    flaky = [o for o in repeated if 0 < o.runs_passed < o.runs_measured]
    broken = [o for o in repeated if o.runs_passed == 0]
    if flaky:
        yield "flaky: " + join_names([f"{o.case_id} ({o.runs_passed} of {o.runs_measured} runs)" for o in flaky])
    if broken:
        yield f"broken in every run: {join_names([o.case_id for o in broken])}"


def _list_repeat_rates(evidence: GateEvidence) -> Iterator[str]:
    """pass^k and pass@k by the number of runs, k being all of them. A case that stopped early may leave one open."""
    groups: dict[int, list[CaseOutcome]] = {}
    for outcome in evidence.list_outcomes():
        if outcome.runs_planned > 1 and outcome.runs_measured and not outcome.hand_written:
            groups.setdefault(outcome.runs_planned, []).append(outcome)
    for runs, members in sorted(groups.items()):
        all_passed = [known for o in members if (known := o.all_passed) is not None]
        one_passed = [known for o in members if (known := o.one_passed) is not None]
        shares = [
            f"{name}{runs} {format_rate(Fraction(100 * sum(known), len(known)))} ({sum(known)} of {format_case_count(len(known))})"  # noqa: E501
            for name, known in (("pass^", all_passed), ("pass@", one_passed))
            if known
        ]
        if shares:
            yield f"repeated {runs} times: {', '.join(shares)}"
