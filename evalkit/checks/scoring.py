"""Partial credit: information, unless the case asks for it with `min_score`.

Let M be the calls that met their expectation in its place, A the actual calls that are judged (all of them; without
those that `extra_calls: allow` allows), and E the expected calls: those that were held against a call, and those
that are missing.

- precision = M / A, recall = M / E, F1 = 2 M / (A + E): the usual definitions, the last being their harmonic mean.
- argument accuracy = the demands on arguments that hold, of all that are made: each argument listed in `arguments` or
  `arguments_contain`, each argument sent that `arguments` does not list, each phrase and each absent name
  counts one. A missing call misses all of its demands.

Where a denominator is 0 nothing was demanded, and the value is 1; precision is 0 where calls were expected and none
was made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from evalkit.checks.evidence import Evidence
from evalkit.checks.expected_call import ExpectedCall
from evalkit.checks.matching.assignment import Assignment
from evalkit.checks.reading import KeyPath
from evalkit.checks.reasons import build_run_failure, format_place
from evalkit.checks.strays import DisallowedExtra
from evalkit.model.verdict import CheckResult, Score


def compute_score(
    leaves: Sequence[ExpectedCall],
    assignment: Assignment,
    disallowed: Mapping[int, DisallowedExtra],
    forbids_extras: bool,
    evidence: Evidence,
) -> Score:
    """The partial credit of an assignment that does not satisfy its plan."""
    compared = [(leaves[pair.leaf_id], pair.actual_index) for pair in (*assignment.pairs, *assignment.wrong_order)]
    compared += [(stray.leaf, stray.place) for stray in disallowed.values() if not stray.miscounted]
    missing = [(leaves[leaf_id], count) for leaf_id, count in assignment.missing]
    met = sum(pair.fits for pair in assignment.pairs)
    miscounted = sum(stray.miscounted for stray in disallowed.values())
    judged = len(evidence.calls) if forbids_extras else len(compared) + miscounted
    expected = len(compared) + sum(count for _, count in missing)
    demands = [leaf.count_arguments_met(evidence.calls[place], evidence) for leaf, place in compared]
    demands += [(0, leaf.count_argument_demands() * count) for leaf, count in missing]
    demanded = sum(of for _, of in demands)
    return Score(
        precision=met / judged if judged else float(not expected),
        recall=met / expected if expected else 1.0,
        f1=2 * met / (judged + expected) if judged + expected else 1.0,
        argument_accuracy=sum(hold for hold, _ in demands) / demanded if demanded else 1.0,
    )


def judge_score(min_score: tuple[tuple[str, float], ...], score: Score, path: KeyPath) -> CheckResult:
    """Whether every score that the case asks for is reached."""
    short = [(name, minimum) for name, minimum in min_score if getattr(score, name) < minimum]
    parts = [
        f"{name} is {getattr(score, name):.3g}, {'expected ' if short else ''}at least {minimum:g}"
        for name, minimum in short or min_score
    ]
    if not short:
        return CheckResult(check="min_score", message=", ".join(parts))
    place = format_place((*path[:-1], "min_score"))
    actual = {name: getattr(score, name) for name, _ in short}
    return build_run_failure("min_score", "score_too_low", ", ".join(parts), place, expected=dict(short), actual=actual)
