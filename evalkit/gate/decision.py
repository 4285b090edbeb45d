"""All rules applied to a run, and the decision they add up to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

from evalkit import stats
from evalkit.errors import UsageError
from evalkit.gate.counts import Counts, Outcome, count, outcome_of
from evalkit.gate.rates import cases, names, percentage, shown_rate
from evalkit.gate.rules import RULES, Evidence
from evalkit.model.run import MET, MISSED, NOT_MEASURED, GateDecision, Policy, Run

EXIT_STATUS = {MET: 0, MISSED: 1, NOT_MEASURED: 6}
_WEIGHT = (MISSED, NOT_MEASURED, MET)


def decide(run: Run, policy: Policy, baseline: Run | None = None) -> GateDecision:
    """Whether `run` meets `policy`: status, reasons in words (the deciding ones first), exit status 0, 1 or 6.

    `baseline` is an earlier run: what changed is in `facts`, and `policy.no_regressions` is judged against it.
    Raises UsageError for a policy that makes no sense, and for `no_regressions` without a baseline.
    """
    return decide_outcomes(
        [outcome_of(verdict) for verdict in run.verdicts],
        policy,
        selected=run.selected,
        collected=run.collected,
        part=bool(run.metadata.get("part")),
        shard=run.shard,
        whole=None if run.selection is None else run.selection.count,
        baseline=None if baseline is None else [outcome_of(verdict) for verdict in baseline.verdicts],
    )


def decide_outcomes(
    outcomes: Sequence[Outcome],
    policy: Policy,
    *,
    selected: Sequence[str] = (),
    collected: int = 0,
    part: bool = False,
    shard: str | None = None,
    whole: int | None = None,
    baseline: Sequence[Outcome] | None = None,
) -> GateDecision:
    """`decide`, from outcomes alone. A case that is told twice counts as it was told last.

    `part`: there are cases that nobody looked at, so that none can be said to be missing. Of a shard, `whole` is the
    number of cases that were split; those of the other shards may still pass.
    """
    if policy.max_errors < 0:
        raise UsageError(f"max_errors: {policy.max_errors} is negative; 0 allows none")
    known = {outcome.case_id: outcome for outcome in outcomes}
    ids = tuple(dict.fromkeys((*selected, *known)))
    elsewhere = 0 if shard is None or whole is None else max(whole - len(ids), 0)
    evidence = Evidence(
        outcomes=known,
        selected=ids,
        counts=count(known, ids, elsewhere),
        policy=policy,
        collected=max(collected, len(ids)),
        part=part,
        shard=shard,
        baseline=None if baseline is None else {outcome.case_id: outcome for outcome in baseline},
    )
    findings = [finding for rule in RULES for finding in rule(evidence)]
    status = next((status for status in _WEIGHT if any(found == status for found, _ in findings)), MET)
    return GateDecision(
        status=status,
        reasons=tuple(text for weight in _WEIGHT for found, text in findings if found == weight),
        exit_status=EXIT_STATUS[status],
        facts=_facts(evidence),
    )


def _facts(evidence: Evidence) -> dict[str, Any]:
    counts, rate = evidence.counts, evidence.counts.rate()
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
        "notes": list(_notes(evidence)),
    }
    if counts.measured:
        facts["interval"] = [100 * bound for bound in stats.wilson(len(counts.passed), counts.measured)]
    if evidence.baseline is not None:
        from evalkit.gate.comparison import changes, how_sure

        facts["changes"] = changes(evidence, evidence.baseline)
        facts["how_sure"] = list(how_sure(evidence, evidence.baseline))
    return facts


def _notes(evidence: Evidence) -> Iterator[str]:
    """What a reader should know beside the reasons, a line each."""
    counts = evidence.counts
    if len(evidence.selected) < evidence.collected:
        yield f"over {len(evidence.selected)} of {evidence.collected} collected"
    if counts.measured:
        yield _interval(counts, percentage(evidence.policy.min_pass_rate))
    if counts.failed:
        yield f"failed: {names(counts.failed)}"
    yield from _over_repeats(evidence)
    yield from _unsteady(evidence)
    hand_written = sum(outcome.hand_written for outcome in evidence.told())
    if hand_written:
        verb = "replays a hand-written cassette" if hand_written == 1 else "replay hand-written cassettes"
        yield f"{cases(hand_written)} {verb}, no model's own answers"
    if counts.skipped:
        yield f"skipped: {names(counts.skipped)}"
    if counts.quarantined:
        yield f"quarantined: {names(counts.quarantined)}"
    if evidence.baseline is not None:
        from evalkit.gate.comparison import changes, how_sure

        for what, ids in changes(evidence, evidence.baseline).items():
            if ids:
                yield f"{what.replace('_', ' ')}: {names(ids)}"
        yield from how_sure(evidence, evidence.baseline)


def _interval(counts: Counts, wanted: Fraction) -> str:
    low, high = (shown_rate(Fraction(bound) * 100) for bound in stats.wilson(len(counts.passed), counts.measured))
    text = f"95 % interval of the pass rate: {low} to {high} ({cases(counts.measured)})"
    if 0 < wanted < 100:
        text += f"; {stats.clean_runs_needed(wanted / 100)} clean runs would show {shown_rate(wanted)}"
    return text


def _unsteady(evidence: Evidence) -> Iterator[str]:
    repeated = [o for i in evidence.selected if (o := evidence.outcomes.get(i)) is not None and o.runs_measured > 1]
    flaky = [o for o in repeated if 0 < o.runs_passed < o.runs_measured]
    broken = [o for o in repeated if o.runs_passed == 0]
    if flaky:
        yield "flaky: " + names([f"{o.case_id} ({o.runs_passed} of {o.runs_measured} runs)" for o in flaky])
    if broken:
        yield f"broken in every run: {names([o.case_id for o in broken])}"


def _over_repeats(evidence: Evidence) -> Iterator[str]:
    """pass^k and pass@k by the number of runs, k being all of them. A case that stopped early may leave one open."""
    groups: dict[int, list[Outcome]] = {}
    for outcome in evidence.told():
        if outcome.runs_planned > 1 and outcome.runs_measured and not outcome.hand_written:
            groups.setdefault(outcome.runs_planned, []).append(outcome)
    for runs, members in sorted(groups.items()):
        all_passed = [known for o in members if (known := o.all_passed) is not None]
        one_passed = [known for o in members if (known := o.one_passed) is not None]
        shares = [
            f"{name}{runs} {shown_rate(Fraction(100 * sum(known), len(known)))} ({sum(known)} of {cases(len(known))})"
            for name, known in (("pass^", all_passed), ("pass@", one_passed))
            if known
        ]
        if shares:
            yield f"repeated {runs} times: {', '.join(shares)}"
