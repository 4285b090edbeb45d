"""What became of the selected cases: the few facts of each on which a gate turns, and their counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction

from msgspec import Struct, field

from evalkit.model.verdict import ERROR, FAILED, NOT_RUN, PASSED, Verdict

SKIPPED_CODE = "skipped"  # the reason's code of a case that was skipped on request


class CaseOutcome(Struct, frozen=True, kw_only=True):
    """What the gate needs to know of a case, so that transcripts need not stay in memory."""

    case_id: str
    status: str
    category: str = ""
    must_pass: bool = False
    quarantined: bool = False
    skipped: bool = False  # on request
    runs_passed: int = 0
    runs_measured: int = 0
    runs_planned: int = 1  # more than were made, where the case was settled early
    cost_usd: float | None = None
    elapsed_ms: float = 0.0
    latencies: tuple[float, ...] = ()  # ms of each measured run of which the time is known
    text_calls: int = 0
    model_calls: int = 0
    hand_written: bool = False  # a hand-written cassette played the model

    @property
    def all_passed(self) -> bool | None:
        """Whether all planned runs pass; None where that was left open."""
        if self.runs_passed < self.runs_measured:
            return False
        return True if self.runs_measured >= self.runs_planned else None

    @property
    def one_passed(self) -> bool | None:
        """Whether one of the planned runs passes; None where that was left open."""
        if self.runs_passed:
            return True
        return False if self.runs_measured >= self.runs_planned else None


def build_outcome(verdict: Verdict) -> CaseOutcome:
    """The few facts of a verdict on which a gate turns."""
    runs = verdict.runs or (verdict,)
    measured = [run for run in runs if run.status in (PASSED, FAILED)]
    channels = [call.channel for run in runs for call in run.transcript.calls if call.channel in ("native", "text")]
    costs = [_compute_cost(run) for run in runs]
    timings = [run.transcript.timing for run in runs if run.transcript.timing is not None]
    measured_timings = [run.transcript.timing for run in measured if run.transcript.timing is not None]
    return CaseOutcome(
        case_id=verdict.case_id,
        status=verdict.status,
        category=verdict.category,
        must_pass=verdict.must_pass,
        quarantined=verdict.quarantined is not None,
        skipped=verdict.status == NOT_RUN and any(reason.code == SKIPPED_CODE for reason in verdict.reasons),
        runs_passed=sum(run.status == PASSED for run in measured),
        runs_measured=len(measured),
        runs_planned=verdict.runs_planned,
        cost_usd=None if None in costs else sum(cost for cost in costs if cost is not None),
        elapsed_ms=sum(timing.elapsed_ms for timing in timings),
        latencies=tuple(timing.total_ms for timing in measured_timings),
        text_calls=channels.count("text"),
        model_calls=len(channels),
        hand_written=any(run.transcript.cassette == "hand-written" for run in runs),
    )


def _compute_cost(run: Verdict) -> float | None:
    """USD; 0 without model turns; unknown (None) where a live model's turns have no price."""
    if run.transcript.cost_usd is not None:
        return run.transcript.cost_usd
    return 0.0 if not run.transcript.turns or run.transcript.cassette is not None else None


class CaseCounts(Struct):
    """The selected cases, sorted by what became of them. Each field holds case ids."""

    passed: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    unjudged: list[str] = field(default_factory=list)  # selected, and no verdict: interrupted, crashed, lost
    skipped: list[str] = field(default_factory=list)
    quarantined: list[str] = field(default_factory=list)
    elsewhere: int = 0  # cases of other shards, of which nothing is known here

    @property
    def measured(self) -> int:
        return len(self.passed) + len(self.failed)

    @property
    def unmeasured(self) -> int:
        return len(self.errors) + len(self.unjudged)

    def compute_rate(self) -> Fraction | None:
        """Passed over measured, as a percentage; None if nothing was measured."""
        return Fraction(100 * len(self.passed), self.measured) if self.measured else None

    def compute_best_rate(self) -> Fraction:
        """The rate if every unmeasured case would pass, here and elsewhere."""
        unknown = self.unmeasured + self.elsewhere
        total = self.measured + unknown
        return Fraction(100 * (len(self.passed) + unknown), total) if total else Fraction(100)


def count_outcomes(outcomes: Mapping[str, CaseOutcome], selected: Iterable[str], elsewhere: int = 0) -> CaseCounts:
    """Every selected case once; an id without an outcome is unjudged."""
    counts = CaseCounts(elsewhere=elsewhere)
    for case_id in selected:
        _select_list(counts, outcomes.get(case_id)).append(case_id)
    return counts


def _select_list(counts: CaseCounts, outcome: CaseOutcome | None) -> list[str]:
    if outcome is None:
        return counts.unjudged
    if outcome.quarantined:
        return counts.quarantined
    if outcome.skipped:
        return counts.skipped
    places = {PASSED: counts.passed, FAILED: counts.failed, ERROR: counts.errors}
    return places.get(outcome.status, counts.unjudged)
