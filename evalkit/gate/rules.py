"""What a policy demands, one function a rule. Each yields findings: what it means for the gate, and why."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction

from msgspec import Struct

from evalkit.errors import UsageError
from evalkit.gate.outcomes import CaseCounts, CaseOutcome, count_outcomes
from evalkit.model.run import MET, MISSED, NOT_MEASURED, Policy
from evalkit.model.verdict import ERROR, FAILED, NOT_RUN, PASSED
from evalkit.stats.accounting import nearest_rank
from evalkit.stats.intervals import wilson
from evalkit.text.format import format_case_count, format_rate, join_names, parse_percentage

Finding = tuple[str, str]  # MET, MISSED or NOT_MEASURED; the reason in words


class GateEvidence(Struct, frozen=True, kw_only=True):
    """What the rules look at. `baseline` is None where there is none."""

    outcomes: Mapping[str, CaseOutcome]
    selected: tuple[str, ...]
    counts: CaseCounts
    policy: Policy
    collected: int = 0
    part: bool = False  # cases were left out before they could be collected
    shard: str | None = None
    baseline: Mapping[str, CaseOutcome] | None = None

    @property
    def is_whole(self) -> bool:
        """Whether all cases that there are were selected."""
        return not self.part and len(self.selected) == self.collected

    def list_outcomes(self) -> list[CaseOutcome]:
        """The outcomes of the selected cases that have one."""
        return [self.outcomes[case_id] for case_id in self.selected if case_id in self.outcomes]


def check_selection(evidence: GateEvidence) -> Iterator[Finding]:
    if evidence.shard is not None:
        number, total = len(evidence.selected), len(evidence.selected) + evidence.counts.elsewhere
        part = f" ({number} of {format_case_count(total)})" if evidence.counts.elsewhere else ""
        yield (
            NOT_MEASURED,
            f"this is shard {evidence.shard} alone{part}; join all shards with `evalkit merge`, then gate",
        )
    elif not evidence.selected:
        why = "every collected case was deselected" if evidence.collected else "no case was collected"
        yield NOT_MEASURED, why
    elif not evidence.counts.measured and not evidence.counts.unmeasured:
        skipped, quarantined = len(evidence.counts.skipped), len(evidence.counts.quarantined)
        yield NOT_MEASURED, f"no case was measured: {skipped} skipped, {quarantined} quarantined"


def check_unmeasured(evidence: GateEvidence) -> Iterator[Finding]:
    counts, limit = evidence.counts, evidence.policy.max_errors
    if counts.unjudged:
        verb = "has" if len(counts.unjudged) == 1 else "have"
        yield (
            NOT_MEASURED,
            f"{format_case_count(len(counts.unjudged))} {verb} no verdict: {join_names(counts.unjudged)}",
        )
    if len(counts.errors) > limit:
        allowed = f"at most {limit} may be" if limit else "none may be"
        yield (
            NOT_MEASURED,
            f"{format_case_count(len(counts.errors))} could not be measured, {allowed}: {join_names(counts.errors)}",
        )
    elif counts.unmeasured and not counts.measured:
        yield NOT_MEASURED, "no case was measured"


def check_must_pass(evidence: GateEvidence) -> Iterator[Finding]:
    words = {FAILED: "failed", ERROR: "could not be measured", NOT_RUN: "did not run"}
    for outcome in evidence.list_outcomes():
        if outcome.must_pass and outcome.status != PASSED:
            status = MISSED if outcome.status == FAILED else NOT_MEASURED
            yield status, f"must_pass case {words[outcome.status]}: {outcome.case_id}"


def check_pass_rate(evidence: GateEvidence) -> Iterator[Finding]:
    target = parse_percentage(evidence.policy.min_pass_rate)
    yield from _judge_rate(evidence.counts, target, "cases")


def check_category_floors(evidence: GateEvidence) -> Iterator[Finding]:
    members: dict[str, list[str]] = {}
    for outcome in evidence.list_outcomes():
        members.setdefault(_fold_category(outcome.category), []).append(outcome.case_id)
    for category, floor in evidence.policy.category_floors.items():
        target = parse_percentage(floor, f"category_floors.{category}")
        category_members = members.get(_fold_category(category), [])
        members_at_most = dict.fromkeys((*category_members, *_list_uncategorized(evidence)))
        counts = count_outcomes(evidence.outcomes, members_at_most, evidence.counts.elsewhere)
        if counts.measured:
            yield from _judge_rate(counts, target, f"cases of category {category}")
        elif evidence.is_whole or count_outcomes(evidence.outcomes, category_members).unmeasured:
            categories = ", ".join(sorted(members)) or "none"
            yield (
                NOT_MEASURED,
                f"category_floors.{category}: no case of that category was measured; there are: {categories}",
            )


def _list_uncategorized(evidence: GateEvidence) -> list[str]:
    """Cases without a verdict, and broken files: each may be of any category."""
    outcomes = ((case_id, evidence.outcomes.get(case_id)) for case_id in evidence.selected)
    return [case_id for case_id, o in outcomes if o is None or (o.status == ERROR and not o.category)]


def _fold_category(category: str) -> str:
    return category.casefold().replace("_", "-")


def _judge_rate(counts: CaseCounts, target: Fraction, noun: str) -> Iterator[Finding]:
    rate, best = counts.compute_rate(), counts.compute_best_rate()
    if best < target:
        beyond = f"; with {_describe_unknown(counts)} it would be {format_rate(best)} at best"
        yield (
            MISSED,
            f"{_describe_passed(counts, noun)}; {_describe_target(target)}{beyond if counts.unmeasured or counts.elsewhere else ''}",  # noqa: E501
        )
    elif rate is None:
        return
    elif rate >= target:
        yield MET, f"{_describe_passed(counts, noun)}; {_describe_target(target)}"
    else:
        yield (
            NOT_MEASURED,
            f"{_describe_passed(counts, noun)}; {_describe_target(target)}, and {_describe_unknown(counts)} decide it",
        )


def _describe_unknown(counts: CaseCounts) -> str:
    parts = [f"the {counts.unmeasured} unmeasured"] if counts.unmeasured else []
    return " and ".join([*parts, f"the {counts.elsewhere} of other shards"] if counts.elsewhere else parts)


def _describe_target(target: Fraction) -> str:
    return f"at least {format_rate(target)} must pass"


def _describe_passed(counts: CaseCounts, noun: str) -> str:
    rate = counts.compute_rate()
    return f"{len(counts.passed)} of {counts.measured} {noun} passed" + (
        f" ({format_rate(rate)})" if rate is not None else ""
    )


def check_lower_bound(evidence: GateEvidence) -> Iterator[Finding]:
    if evidence.policy.min_lower_bound is None or not evidence.counts.measured:
        return
    target = parse_percentage(evidence.policy.min_lower_bound, "min_lower_bound")
    counts = evidence.counts
    unknown = counts.unmeasured + counts.elsewhere
    total = counts.measured + unknown
    low = Fraction(wilson(len(counts.passed), counts.measured)[0]) * 100
    best = Fraction(wilson(len(counts.passed) + unknown, total)[0]) * 100
    status = MISSED if best < target else MET if low >= target else NOT_MEASURED
    yield status, f"the lower bound of the pass rate is {format_rate(low)}; at least {format_rate(target)} is demanded"


def check_skips(evidence: GateEvidence) -> Iterator[Finding]:
    limit, skipped = evidence.policy.max_skipped, evidence.counts.skipped
    if limit is not None and len(skipped) > limit:
        yield NOT_MEASURED, f"{format_case_count(len(skipped))} skipped, at most {limit} may be: {join_names(skipped)}"


def check_cost(evidence: GateEvidence) -> Iterator[Finding]:
    limit = evidence.policy.max_cost_usd
    if limit is None:
        return
    costs = {outcome.case_id: outcome.cost_usd for outcome in evidence.list_outcomes()}
    total = sum(usd for usd in costs.values() if usd is not None)
    unknown = [case_id for case_id, usd in costs.items() if usd is None]
    if total > limit:
        yield MISSED, f"the run cost {total:.4g} USD; at most {limit:.4g} may be spent"
    elif unknown:
        yield NOT_MEASURED, f"the cost of {format_case_count(len(unknown))} is unknown: {join_names(unknown)}"


def check_latency(evidence: GateEvidence) -> Iterator[Finding]:
    limit = evidence.policy.max_latency_ms
    if limit is None:
        return
    measured = [outcome for outcome in evidence.list_outcomes() if outcome.status in (PASSED, FAILED)]
    untimed = [outcome.case_id for outcome in measured if len(outcome.latencies) < outcome.runs_measured]
    times = sorted(ms for outcome in measured for ms in outcome.latencies)
    percentile = nearest_rank(times, 0.95) if times else 0.0
    if percentile > limit:
        yield MISSED, f"95 % of the runs took up to {percentile:,.0f} ms; at most {limit:,.0f} ms are allowed"
    elif untimed:
        yield NOT_MEASURED, f"the time of {format_case_count(len(untimed))} is unknown: {join_names(untimed)}"


def check_text_calls(evidence: GateEvidence) -> Iterator[Finding]:
    if evidence.policy.max_text_call_rate is None:
        return
    limit = parse_percentage(evidence.policy.max_text_call_rate, "max_text_call_rate")
    outcomes = evidence.list_outcomes()
    text_count, total = sum(o.text_calls for o in outcomes), sum(o.model_calls for o in outcomes)
    if total and Fraction(100 * text_count, total) > limit:
        rate = format_rate(Fraction(100 * text_count, total))
        yield MISSED, f"{text_count} of {total} calls came as text ({rate}); at most {format_rate(limit)} may"
    elif not total and evidence.is_whole:
        yield NOT_MEASURED, f"no call of a model was seen; at most {format_rate(limit)} may come as text"


def check_regressions(evidence: GateEvidence) -> Iterator[Finding]:
    if not evidence.policy.no_regressions:
        return
    if evidence.baseline is None:
        raise UsageError(
            "no_regressions needs a baseline: give the run file of an earlier run (--evalkit-baseline FILE)"
        )
    passed_before = {case_id for case_id, outcome in evidence.baseline.items() if outcome.status == PASSED}
    newly = [case_id for case_id in evidence.counts.failed if case_id in passed_before]
    untold = [i for i in (*evidence.counts.errors, *evidence.counts.unjudged) if i in passed_before]
    if newly:
        yield MISSED, f"{format_case_count(len(newly))} passed in the baseline and failed now: {join_names(newly)}"
    elif untold:
        yield (
            NOT_MEASURED,
            f"{format_case_count(len(untold))} passed in the baseline and could not be measured now: {join_names(untold)}",  # noqa: E501
        )
    else:
        yield MET, "no case that passed in the baseline failed"


RULES: tuple[Callable[[GateEvidence], Iterator[Finding]], ...] = (
    check_selection,
    check_must_pass,
    check_pass_rate,
    check_category_floors,
    check_lower_bound,
    check_unmeasured,
    check_skips,
    check_cost,
    check_latency,
    check_text_calls,
    check_regressions,
)
