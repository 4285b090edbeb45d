"""Runs of passed cases with one thing changed, in reports. How much of them was measured is always said, since silence
would be taken for a pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from evalkit.hooks import ChangedRuns, iter_known
from evalkit.records.verdict import ERROR, FAILED, NOT_RUN, ChangedRun, Verdict
from evalkit.text.format import format_case_count


def list_words(features: Iterable[str]) -> Iterator[tuple[str, ChangedRuns]]:
    """Yield the features of these names, each with how reports call its changed runs."""
    for name, feature in iter_known(features):
        if feature.changed_runs is not None:
            yield name, feature.changed_runs


def list_kinds(verdicts: Iterable[Verdict]) -> Iterator[tuple[str, ChangedRuns]]:
    """Yield the features that have changed runs of the cases, each with how reports call them."""
    return list_words(run.feature for verdict in verdicts for run in verdict.changed_runs)


def list_runs_of(name: str, verdict: Verdict) -> list[ChangedRun]:
    """List the changed runs of a case that feature `name` asked for."""
    return [run for run in verdict.changed_runs if run.feature == name]


def format_changed_runs(words: ChangedRuns, runs: Counter[str], cases: int) -> str:
    """Return ``8 fault runs: 5 passed, 1 failed, 2 not measurable offline``, of a count by status over so many
    cases."""
    total = sum(runs.values())
    if not total:
        return f"{words.nothing}: in {format_case_count(cases)}, none passed with {words.subject}"
    verbs = {FAILED: "failed", ERROR: "could not be measured", NOT_RUN: words.unmeasured}
    measured = total - runs[NOT_RUN] - runs[ERROR]
    parts = [f"{runs[status]} {verb}" for status, verb in verbs.items() if runs[status]]
    if measured > runs[FAILED]:
        parts.insert(0, f"{measured - runs[FAILED]} passed")
    nothing = f"; NOTHING was measured, {words.advice}" if not measured else ""
    return f"{total:,} {words.noun}{'' if total == 1 else 's'}: {', '.join(parts)}{nothing}"


def count_by_place(name: str, verdicts: Iterable[Verdict]) -> dict[str, dict[str, Counter[str]]]:
    """Count the runs of a feature by place, group of changes and status, in the order in which they occur."""
    rows: dict[str, dict[str, Counter[str]]] = {}
    for verdict in verdicts:
        for run in list_runs_of(name, verdict):
            rows.setdefault(run.place, {}).setdefault(run.group or run.change, Counter())[run.status] += 1
    return rows


def list_properties(verdict: Verdict) -> Iterator[tuple[str, str]]:
    """Yield properties for JUnit files: ``check_warranty: timeout passed, error failed; send_email: ...``."""
    for name, _ in list_kinds([verdict]):
        yield (
            f"evalkit_{name}",
            "; ".join(
                f"{place}: {', '.join(_format_group(group, counts) for group, counts in row.items())}"
                for place, row in count_by_place(name, [verdict]).items()
            ),
        )


def _format_group(group: str, counts: Counter[str]) -> str:
    is_single = counts.total() == 1
    return f"{group} {' '.join(status if is_single else f'{n} {status}' for status, n in counts.items())}"
