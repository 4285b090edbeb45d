"""A run against a baseline: which cases changed, in what way, and whether that is more than luck."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction

from evalkit import stats
from evalkit.gate.counts import Outcome
from evalkit.gate.rates import cases, names
from evalkit.gate.rules import Evidence
from evalkit.model.verdict import FAILED, PASSED

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


def changes(evidence: Evidence, baseline: Mapping[str, Outcome]) -> dict[str, list[str]]:
    """Case ids by what changed, of cases that both runs measured. A case with repeats may be in several lists."""
    found: dict[str, list[str]] = {what: [] for what in CHANGES}
    for case_id, before, now in _both(evidence, baseline):
        for what in _kinds(before, now):
            found[what].append(case_id)
    if evidence.is_whole:
        selected = set(evidence.selected)
        found["gone"] = [case_id for case_id in baseline if case_id not in selected]
    return found


def _both(evidence: Evidence, baseline: Mapping[str, Outcome]) -> Iterator[tuple[str, Outcome, Outcome]]:
    for case_id in evidence.selected:
        now, before = evidence.outcomes.get(case_id), baseline.get(case_id)
        if now is not None and before is not None and {now.status, before.status} <= {PASSED, FAILED}:
            yield case_id, before, now


def _kinds(before: Outcome, now: Outcome) -> Iterator[str]:
    if now.status != before.status:
        yield "newly_failing" if now.status == FAILED else "newly_passing"
    if now.runs_measured > 1:
        kind = stats.compare_tallies(_tally(before), _tally(now)).kind
        if kind in ("newly_broken", "newly_flaky"):
            yield kind
        elif _share(now) < _share(before):
            yield "flakier"
    took, takes = _time(before), _time(now)
    if took is not None and takes is not None and takes > 1.5 * took and takes - took > 500:
        yield "slower"
    if (_cost(now) or 0) > 1.2 * (_cost(before) or 0) > 0:
        yield "dearer"


def _time(outcome: Outcome) -> float | None:
    """Milliseconds of a run: a case that was settled early has fewer. None where no run says."""
    return outcome.elapsed_ms / outcome.runs_measured if outcome.latencies else None


def _cost(outcome: Outcome) -> float | None:
    """USD of a run, None if unknown."""
    return None if outcome.cost_usd is None else outcome.cost_usd / outcome.runs_measured


def _tally(outcome: Outcome) -> tuple[int, int]:
    return outcome.runs_passed, outcome.runs_measured


def _share(outcome: Outcome) -> Fraction:
    return Fraction(outcome.runs_passed, outcome.runs_measured) if outcome.runs_measured else Fraction(1)


def how_sure(evidence: Evidence, baseline: Mapping[str, Outcome]) -> Iterator[str]:
    """Whether what changed is more than luck, a line each."""
    both = list(_both(evidence, baseline))
    yield from _paired(both)
    yield from _repeated(both)
    yield from _means(both)


def _paired(both: list[tuple[str, Outcome, Outcome]]) -> Iterator[str]:
    """The cases that went from passing to failing against those that went back: McNemar's test."""
    change = stats.compare_cases(
        {case_id: before.status == PASSED for case_id, before, _ in both},
        {case_id: now.status == PASSED for case_id, _, now in both},
    )
    worse, better = len(change.newly_failing), len(change.newly_passing)
    if worse + better:
        verdict = "more than luck" if change.is_significant() else "luck would do as much"
        yield (
            f"against the baseline {worse} of {cases(change.both)} got worse and {better} better: {verdict} "
            f"(McNemar, p = {_shown(change.p_value)})"
        )


def _repeated(both: list[tuple[str, Outcome, Outcome]]) -> Iterator[str]:
    """Cases whose share of passed runs changed by more than luck: Fisher's test, adjusted for their number."""
    tallies = [
        (i, _tally(before), _tally(now)) for i, before, now in both if before.runs_measured + now.runs_measured > 2
    ]
    found = stats.classify({i: before for i, before, _ in tallies}, {i: now for i, _, now in tallies})
    sure = [(i, before, now) for i, before, now in tallies if found[i][1] and before != now]
    if sure:
        shown = [f"{i} ({before[0]} of {before[1]}, now {now[0]} of {now[1]})" for i, before, now in sure]
        yield f"changed by more than luck (Fisher, adjusted for {cases(len(tallies))}): {names(shown)}"


def _means(both: list[tuple[str, Outcome, Outcome]]) -> Iterator[str]:
    """Time and money per case, where the interval of the change leaves out no change."""
    for noun, unit, of in (("time", "{:,.0f} ms", _time), ("cost", "${:.4f}", _cost)):
        known = ((of(before), of(now)) for _, before, now in both)
        pairs = [(before, now) for before, now in known if before is not None and now is not None]
        if any(before != now for before, now in pairs):
            change = stats.compare_means(pairs)
            if change is not None and change.is_significant:
                low, high = (
                    f"{'-' if bound < 0 else '+'}{unit.format(abs(bound))}" for bound in (change.low, change.high)
                )
                now, before = unit.format(change.now), unit.format(change.before)
                yield f"{noun} per case: {now}, was {before} (95 % interval of the change: {low} to {high})"


def _shown(p_value: Fraction) -> str:
    return f"{float(p_value):.2g}" if p_value >= Fraction(1, 1000) else "below 0.001"
