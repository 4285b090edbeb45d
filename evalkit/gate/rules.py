"""What a policy demands, one function a rule. Each yields findings: what it means for the gate, and why."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction

from msgspec import Struct

from evalkit import stats
from evalkit.errors import UsageError
from evalkit.gate.counts import Counts, Outcome, count
from evalkit.gate.rates import cases, names, percentage, shown_rate
from evalkit.model.run import MET, MISSED, NOT_MEASURED, Policy
from evalkit.model.verdict import ERROR, FAILED, NOT_RUN, PASSED

Finding = tuple[str, str]  # MET, MISSED or NOT_MEASURED; the reason in words


class Evidence(Struct, frozen=True, kw_only=True):
    """What the rules look at. `baseline` is None where there is none."""

    outcomes: Mapping[str, Outcome]
    selected: tuple[str, ...]
    counts: Counts
    policy: Policy
    collected: int = 0
    part: bool = False  # cases were left out before they could be collected
    shard: str | None = None
    baseline: Mapping[str, Outcome] | None = None

    @property
    def is_whole(self) -> bool:
        """Whether all cases that there are were selected."""
        return not self.part and len(self.selected) == self.collected

    def told(self) -> list[Outcome]:
        """The outcomes of the selected cases that have one."""
        return [self.outcomes[case_id] for case_id in self.selected if case_id in self.outcomes]


def selection(evidence: Evidence) -> Iterator[Finding]:
    if evidence.shard is not None:
        number, total = len(evidence.selected), len(evidence.selected) + evidence.counts.elsewhere
        part = f" ({number} of {cases(total)})" if evidence.counts.elsewhere else ""
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


def unmeasured(evidence: Evidence) -> Iterator[Finding]:
    counts, limit = evidence.counts, evidence.policy.max_errors
    if counts.unjudged:
        verb = "has" if len(counts.unjudged) == 1 else "have"
        yield NOT_MEASURED, f"{cases(len(counts.unjudged))} {verb} no verdict: {names(counts.unjudged)}"
    if len(counts.errors) > limit:
        allowed = f"at most {limit} may be" if limit else "none may be"
        yield (
            NOT_MEASURED,
            f"{cases(len(counts.errors))} could not be measured, {allowed}: {names(counts.errors)}",
        )
    elif counts.unmeasured and not counts.measured:
        yield NOT_MEASURED, "no case was measured"


def must_pass(evidence: Evidence) -> Iterator[Finding]:
    words = {FAILED: "failed", ERROR: "could not be measured", NOT_RUN: "did not run"}
    for outcome in evidence.told():
        if outcome.must_pass and outcome.status != PASSED:
            status = MISSED if outcome.status == FAILED else NOT_MEASURED
            yield status, f"must_pass case {words[outcome.status]}: {outcome.case_id}"


def pass_rate(evidence: Evidence) -> Iterator[Finding]:
    wanted = percentage(evidence.policy.min_pass_rate)
    yield from _rate(evidence.counts, wanted, "cases")


def category_floors(evidence: Evidence) -> Iterator[Finding]:
    members: dict[str, list[str]] = {}
    for outcome in evidence.told():
        members.setdefault(_folded(outcome.category), []).append(outcome.case_id)
    for category, floor in evidence.policy.category_floors.items():
        wanted = percentage(floor, f"category_floors.{category}")
        own = members.get(_folded(category), [])
        members_at_most = dict.fromkeys((*own, *_of_any_category(evidence)))
        counts = count(evidence.outcomes, members_at_most, evidence.counts.elsewhere)
        if counts.measured:
            yield from _rate(counts, wanted, f"cases of category {category}")
        elif evidence.is_whole or count(evidence.outcomes, own).unmeasured:
            known = ", ".join(sorted(members)) or "none"
            yield NOT_MEASURED, f"category_floors.{category}: no case of that category was measured; there are: {known}"


def _of_any_category(evidence: Evidence) -> list[str]:
    """Cases without a verdict, and broken files: each may be of any category."""
    found = ((case_id, evidence.outcomes.get(case_id)) for case_id in evidence.selected)
    return [case_id for case_id, o in found if o is None or (o.status == ERROR and not o.category)]


def _folded(category: str) -> str:
    return category.casefold().replace("_", "-")


def _rate(counts: Counts, wanted: Fraction, noun: str) -> Iterator[Finding]:
    rate, best = counts.rate(), counts.best_rate()
    if best < wanted:
        beyond = f"; with {_unknown(counts)} it would be {shown_rate(best)} at best"
        yield (
            MISSED,
            f"{_passed(counts, noun)}; {_wanted(wanted)}{beyond if counts.unmeasured or counts.elsewhere else ''}",
        )
    elif rate is None:
        return
    elif rate >= wanted:
        yield MET, f"{_passed(counts, noun)}; {_wanted(wanted)}"
    else:
        yield (
            NOT_MEASURED,
            f"{_passed(counts, noun)}; {_wanted(wanted)}, and {_unknown(counts)} decide it",
        )


def _unknown(counts: Counts) -> str:
    parts = [f"the {counts.unmeasured} unmeasured"] if counts.unmeasured else []
    return " and ".join([*parts, f"the {counts.elsewhere} of other shards"] if counts.elsewhere else parts)


def _wanted(wanted: Fraction) -> str:
    return f"at least {shown_rate(wanted)} must pass"


def _passed(counts: Counts, noun: str) -> str:
    rate = counts.rate()
    return f"{len(counts.passed)} of {counts.measured} {noun} passed" + (
        f" ({shown_rate(rate)})" if rate is not None else ""
    )


def lower_bound(evidence: Evidence) -> Iterator[Finding]:
    if evidence.policy.min_lower_bound is None or not evidence.counts.measured:
        return
    wanted = percentage(evidence.policy.min_lower_bound, "min_lower_bound")
    counts = evidence.counts
    unknown = counts.unmeasured + counts.elsewhere
    total = counts.measured + unknown
    low = Fraction(stats.wilson(len(counts.passed), counts.measured)[0]) * 100
    best = Fraction(stats.wilson(len(counts.passed) + unknown, total)[0]) * 100
    status = MISSED if best < wanted else MET if low >= wanted else NOT_MEASURED
    yield status, f"the lower bound of the pass rate is {shown_rate(low)}; at least {shown_rate(wanted)} is demanded"


def skips(evidence: Evidence) -> Iterator[Finding]:
    limit, skipped = evidence.policy.max_skipped, evidence.counts.skipped
    if limit is not None and len(skipped) > limit:
        yield NOT_MEASURED, f"{cases(len(skipped))} skipped, at most {limit} may be: {names(skipped)}"


def cost(evidence: Evidence) -> Iterator[Finding]:
    limit = evidence.policy.max_cost_usd
    if limit is None:
        return
    spent = {outcome.case_id: outcome.cost_usd for outcome in evidence.told()}
    total = sum(usd for usd in spent.values() if usd is not None)
    unknown = [case_id for case_id, usd in spent.items() if usd is None]
    if total > limit:
        yield MISSED, f"the run cost {total:.4g} USD; at most {limit:.4g} may be spent"
    elif unknown:
        yield NOT_MEASURED, f"the cost of {cases(len(unknown))} is unknown: {names(unknown)}"


def latency(evidence: Evidence) -> Iterator[Finding]:
    limit = evidence.policy.max_latency_ms
    if limit is None:
        return
    measured = [outcome for outcome in evidence.told() if outcome.status in (PASSED, FAILED)]
    untimed = [outcome.case_id for outcome in measured if len(outcome.latencies) < outcome.runs_measured]
    times = sorted(ms for outcome in measured for ms in outcome.latencies)
    found = stats.nearest_rank(times, 0.95) if times else 0.0
    if found > limit:
        yield MISSED, f"95 % of the runs took up to {found:,.0f} ms; at most {limit:,.0f} ms are allowed"
    elif untimed:
        yield NOT_MEASURED, f"the time of {cases(len(untimed))} is unknown: {names(untimed)}"


def text_calls(evidence: Evidence) -> Iterator[Finding]:
    if evidence.policy.max_text_call_rate is None:
        return
    limit = percentage(evidence.policy.max_text_call_rate, "max_text_call_rate")
    found = evidence.told()
    written, total = sum(o.text_calls for o in found), sum(o.model_calls for o in found)
    if total and Fraction(100 * written, total) > limit:
        rate = shown_rate(Fraction(100 * written, total))
        yield MISSED, f"{written} of {total} calls came as text ({rate}); at most {shown_rate(limit)} may"
    elif not total and evidence.is_whole:
        yield NOT_MEASURED, f"no call of a model was seen; at most {shown_rate(limit)} may come as text"


def regressions(evidence: Evidence) -> Iterator[Finding]:
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
        yield MISSED, f"{cases(len(newly))} passed in the baseline and failed now: {names(newly)}"
    elif untold:
        yield (
            NOT_MEASURED,
            f"{cases(len(untold))} passed in the baseline and could not be measured now: {names(untold)}",
        )
    else:
        yield MET, "no case that passed in the baseline failed"


RULES: tuple[Callable[[Evidence], Iterator[Finding]], ...] = (
    selection,
    must_pass,
    pass_rate,
    category_floors,
    lower_bound,
    unmeasured,
    skips,
    cost,
    latency,
    text_calls,
    regressions,
)
