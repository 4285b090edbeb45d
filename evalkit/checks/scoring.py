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
from evalkit.checks.reading import Path
from evalkit.checks.reasons import failed, place_of
from evalkit.checks.strays import Stray
from evalkit.model.verdict import CheckResult, Score


def score(
    leaves: Sequence[ExpectedCall],
    assignment: Assignment,
    strays: Mapping[int, Stray],
    forbids_extras: bool,
    evidence: Evidence,
) -> Score:
    """The partial credit of an assignment that does not satisfy its plan."""
    held = [(leaves[pair.leaf_id], pair.actual_index) for pair in (*assignment.pairs, *assignment.wrong_order)]
    held += [(stray.leaf, stray.place) for stray in strays.values() if not stray.miscounted]
    missing = [(leaves[leaf_id], count) for leaf_id, count in assignment.missing]
    met = sum(pair.fits for pair in assignment.pairs)
    miscounted = sum(stray.miscounted for stray in strays.values())
    judged = len(evidence.calls) if forbids_extras else len(held) + miscounted
    expected = len(held) + sum(count for _, count in missing)
    demands = [leaf.arguments_met(evidence.calls[place], evidence) for leaf, place in held]
    demands += [(0, leaf.argument_demands() * count) for leaf, count in missing]
    demanded = sum(of for _, of in demands)
    return Score(
        precision=met / judged if judged else float(not expected),
        recall=met / expected if expected else 1.0,
        f1=2 * met / (judged + expected) if judged + expected else 1.0,
        argument_accuracy=sum(hold for hold, _ in demands) / demanded if demanded else 1.0,
    )


def judged_by_score(min_score: tuple[tuple[str, float], ...], found: Score, path: Path) -> CheckResult:
    """Whether every score that the case asks for is reached."""
    short = [(name, least) for name, least in min_score if getattr(found, name) < least]
    told = [
        f"{name} is {getattr(found, name):.3g}, {'expected ' if short else ''}at least {least:g}"
        for name, least in short or min_score
    ]
    if not short:
        return CheckResult(check="min_score", message=", ".join(told))
    place = place_of((*path[:-1], "min_score"))
    actual = {name: getattr(found, name) for name, _ in short}
    return failed("min_score", "score_too_low", ", ".join(told), place, expected=dict(short), actual=actual)
