"""Calls that are extra, and that `extra_calls: allow` still does not allow.

Two keys speak of calls beyond those that the list needs. `optional`: "if it is made, it must match", so a call that
names an optional expectation without meeting it, or any other, is no extra. `times`, where it is written: it says how
often, so one call more that meets the expectation is no extra either. (Without `times` it may be repeated.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import chain, combinations, islice
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from evalkit.checks.evidence import Evidence
from evalkit.checks.expected_calls import ExpectedCall
from evalkit.checks.matching.plan import Assignment, CallPlan, SearchTooLargeError
from evalkit.model.transcript import FunctionCall

if TYPE_CHECKING:
    from evalkit.checks.calls import ExpectedCallList


_MAX_TRIES = 32


class DisallowedExtra(NamedTuple):
    """An extra call, the expectation that rules it out, and whether their number is wrong (or the call differs)."""

    place: int
    leaf: ExpectedCall
    miscounted: bool


def find_disallowed_extras(
    plan: CallPlan, leaves: Sequence[ExpectedCall], assignment: Assignment, evidence: Evidence
) -> tuple[DisallowedExtra, ...]:
    """The extra calls that are not allowed although extra calls are."""
    limited = [leaf for leaf in leaves if leaf.optional or leaf.has_times]
    if not limited or not assignment.extra or plan.extras == "forbid":
        return ()
    return tuple(_find_disallowed(limited, leaves, assignment, evidence))


def solve_without_disallowed(
    expected: ExpectedCallList, leaves: tuple[ExpectedCall, ...], evidence: Evidence
) -> Assignment | None:
    """Another assignment that satisfies the list and leaves no stray: one that gives a place to each call that fits
    somewhere, or to all but a few that may be repeated. None if none was found within _TRIES."""
    plan = replace(expected.plan, extras="forbid")
    fitting = [[leaf for leaf in leaves if leaf.is_met_by(call, evidence)] for call in evidence.calls]
    if _has_too_many_calls(leaves, fitting):
        return None
    extra = {place for place, found in enumerate(fitting) if not found}
    spare = [place for place, found in enumerate(fitting) if not all(leaf.has_times for leaf in found)]
    left_out = chain.from_iterable(combinations(spare, count) for count in range(len(spare) + 1))
    for places in islice(left_out, _MAX_TRIES):
        without = extra.union(places)
        with suppress(SearchTooLargeError):  # the strays are told then
            found = expected.solve(leaves, evidence, plan, without)
            found = replace(found, extra=tuple(sorted(without)))
            if found.satisfied and not find_disallowed_extras(expected.plan, leaves, found, evidence):
                return found
    return None


def _has_too_many_calls(leaves: Sequence[ExpectedCall], fitting: Sequence[Sequence[ExpectedCall]]) -> bool:
    """Whether some function was called more often than all its expectations have room for."""
    room: Counter[str] = Counter()
    for leaf in leaves:
        room[leaf.function_name] += len(fitting) if leaf.max is None else leaf.max
    room.subtract(
        matches[0].function_name for matches in fitting if matches and all(leaf.has_times for leaf in matches)
    )
    return any(count < 0 for count in room.values())


def _find_disallowed(
    limited: Sequence[ExpectedCall], leaves: Sequence[ExpectedCall], assignment: Assignment, evidence: Evidence
) -> Iterator[DisallowedExtra]:
    counts = Counter(pair.leaf_id for pair in assignment.pairs)
    names = {leaf.function_name for leaf in limited}
    filling: dict[int, list[DisallowedExtra]] = {}  # extra calls of expectations that had room for them
    for place in assignment.extra:
        call = evidence.calls[place]
        if call.name not in names:
            continue
        fitting = [leaf for leaf in leaves if leaf.is_met_by(call, evidence)]
        if not fitting:
            yield from _find_differing(place, call, limited, counts, evidence)
        elif all(leaf.has_times for leaf in fitting):
            room = next((leaf for leaf in fitting if leaf.max is None or counts[leaf.id] < leaf.max), None)
            if room is None:
                yield DisallowedExtra(place, fitting[0], True)
            else:
                counts[room.id] += 1
                filling.setdefault(room.id, []).append(DisallowedExtra(place, room, True))
    for calls in filling.values():
        if counts[calls[0].leaf.id] < calls[0].leaf.min:  # of "twice or not at all", once
            yield from calls


def _find_differing(
    place: int, call: FunctionCall, limited: Sequence[ExpectedCall], counts: Counter[int], evidence: Evidence
) -> Iterator[DisallowedExtra]:
    """A call that meets nothing: is it meant for an optional expectation that nothing else has met?

    The matching itself sees to expectations that may be met once; this is for "twice or not at all".
    """
    # Of alternatives only one is met, and the calls of the others are not expected at all.
    open_ones = [leaf for leaf in limited if leaf.optional and not counts[leaf.id] and "one_of" not in leaf.path]
    named = [leaf for leaf in open_ones if leaf.function_name == call.name]
    if named:
        yield DisallowedExtra(place, min(named, key=lambda leaf: leaf.measure_distance(call, evidence)), False)
