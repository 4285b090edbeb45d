"""A run against a baseline: which cases changed, in what way, and whether that is more than luck."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction

from evalkit.gate.outcomes import CaseOutcome
from evalkit.gate.rules import GateEvidence
from evalkit.model.verdict import FAILED, PASSED
from evalkit.stats.comparison import classify, compare_cases, compare_means, compare_tallies
from evalkit.text.format import format_case_count, join_names

# What may have changed in a case; the last one can't be told of a part of the suite.
CHANGES = (
    "newly_failing",
    "newly_broken",
    "newly_flaky",
    "flakier",
    "newly_passing",
    "slower",
    "dearer",
    "gone",
)


def find_changes(evidence: GateEvidence, baseline: Mapping[str, CaseOutcome]) -> dict[str, list[str]]:
    """Case ids by what changed, of cases that both runs measured. A case with repeats may be in several lists."""
    changes: dict[str, list[str]] = {change: [] for change in CHANGES}
    for case_id, before, now in _iter_pairs(evidence, baseline):
        for change in _find_kinds(before, now):
            changes[change].append(case_id)
    if evidence.is_whole:
        selected = set(evidence.selected)
        changes["gone"] = [case_id for case_id in baseline if case_id not in selected]
    return changes


def _iter_pairs(
    evidence: GateEvidence, baseline: Mapping[str, CaseOutcome]
) -> Iterator[tuple[str, CaseOutcome, CaseOutcome]]:
    for case_id in evidence.selected:
        now, before = evidence.outcomes.get(case_id), baseline.get(case_id)
        if now is not None and before is not None and {now.status, before.status} <= {PASSED, FAILED}:
            yield case_id, before, now


def _find_kinds(before: CaseOutcome, now: CaseOutcome) -> Iterator[str]:
    if now.status != before.status:
        yield "newly_failing" if now.status == FAILED else "newly_passing"
    if now.runs_measured > 1:
        kind = compare_tallies(_get_tally(before), _get_tally(now)).kind
        if kind in ("newly_broken", "newly_flaky"):
            yield kind
        elif _compute_share(now) < _compute_share(before):
            yield "flakier"
    took, takes = _compute_time(before), _compute_time(now)
    if took is not None and takes is not None and takes > 1.5 * took and takes - took > 500:
        yield "slower"
    if (_compute_run_cost(now) or 0) > 1.2 * (_compute_run_cost(before) or 0) > 0:
        yield "dearer"


def _compute_time(outcome: CaseOutcome) -> float | None:
    """Milliseconds of a run: a case that was settled early has fewer. None where no run says."""
    return outcome.elapsed_ms / outcome.runs_measured if outcome.latencies else None


def _compute_run_cost(outcome: CaseOutcome) -> float | None:
    """USD of a run, None if unknown."""
    return None if outcome.cost_usd is None else outcome.cost_usd / outcome.runs_measured


def _get_tally(outcome: CaseOutcome) -> tuple[int, int]:
    return outcome.runs_passed, outcome.runs_measured


def _compute_share(outcome: CaseOutcome) -> Fraction:
    return Fraction(outcome.runs_passed, outcome.runs_measured) if outcome.runs_measured else Fraction(1)


def describe_significance(evidence: GateEvidence, baseline: Mapping[str, CaseOutcome]) -> Iterator[str]:
    """Whether what changed is more than luck, a line each."""
    both = list(_iter_pairs(evidence, baseline))
    yield from _describe_paired(both)
    yield from _describe_repeated(both)
    yield from _describe_means(both)


def _describe_paired(both: list[tuple[str, CaseOutcome, CaseOutcome]]) -> Iterator[str]:
    """The cases that went from passing to failing against those that went back: McNemar's test."""
    change = compare_cases(
        {case_id: before.status == PASSED for case_id, before, _ in both},
        {case_id: now.status == PASSED for case_id, _, now in both},
    )
    worse, better = len(change.newly_failing), len(change.newly_passing)
    if worse + better:
        verdict = "more than luck" if change.is_significant() else "luck would do as much"
        yield (
            f"against the baseline {worse} of {format_case_count(change.both)} got worse and {better} better: {verdict} "  # noqa: E501
            f"(McNemar, p = {_format_p_value(change.p_value)})"
        )


def _describe_repeated(both: list[tuple[str, CaseOutcome, CaseOutcome]]) -> Iterator[str]:
    """Cases whose share of passed runs changed by more than luck: Fisher's test, adjusted for their number."""
    tallies = [
        (i, _get_tally(before), _get_tally(now))
        for i, before, now in both
        if before.runs_measured + now.runs_measured > 2
    ]
    changes = classify({i: before for i, before, _ in tallies}, {i: now for i, _, now in tallies})
    sure = [(i, before, now) for i, before, now in tallies if changes[i][1] and before != now]
    if sure:
        texts = [f"{i} ({before[0]} of {before[1]}, now {now[0]} of {now[1]})" for i, before, now in sure]
        yield f"changed by more than luck (Fisher, adjusted for {format_case_count(len(tallies))}): {join_names(texts)}"


def _describe_means(both: list[tuple[str, CaseOutcome, CaseOutcome]]) -> Iterator[str]:
    """Time and money per case, where the interval of the change leaves out no change."""
    for noun, unit, compute in (("time", "{:,.0f} ms", _compute_time), ("cost", "${:.4f}", _compute_run_cost)):
        values = ((compute(before), compute(now)) for _, before, now in both)
        pairs = [(before, now) for before, now in values if before is not None and now is not None]
        if any(before != now for before, now in pairs):
            change = compare_means(pairs)
            if change is not None and change.is_significant:
                low, high = (
                    f"{'-' if bound < 0 else '+'}{unit.format(abs(bound))}" for bound in (change.low, change.high)
                )
                now, before = unit.format(change.now), unit.format(change.before)
                yield f"{noun} per case: {now}, was {before} (95 % interval of the change: {low} to {high})"


def _format_p_value(p_value: Fraction) -> str:
    return f"{float(p_value):.2g}" if p_value >= Fraction(1, 1000) else "below 0.001"
