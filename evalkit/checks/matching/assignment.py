"""The answer: what met what, and what is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from msgspec import Struct, field

from evalkit.checks.matching.plan import Position
from evalkit.errors import MeasurementError


class SearchTooLargeError(MeasurementError):
    """The groups are so ambiguous that no exact answer was found within the bound. Nothing was judged."""


class Pair(NamedTuple):
    """An expectation and the call that it is held against. Not `fits`: they only share the name."""

    leaf_id: int
    actual_index: int
    fits: bool = True


class Assignment(Struct, frozen=True):
    """The best assignment of actual calls to expectations. No call and no place of an expectation is used twice.

    If `satisfied`, every pair fits, and nothing is missing, out of order or not parallel; `extra` is then allowed.
    Otherwise at least one of these says why: a pair that does not fit, `missing`, `wrong_order`, `not_parallel`,
    `unproven`, or `extra` under ``extras="forbid"`` (and where nothing at all is expected). The assignment has
    then as many fitting pairs in their right order as possible; among those it prefers pairs of the same name,
    then the least distance, then the earliest call.
    """

    satisfied: bool
    pairs: tuple[Pair, ...] = ()  # by actual call
    missing: tuple[tuple[int, int], ...] = ()  # (leaf_id, how many more), in the order of the plan
    extra: tuple[int, ...] = ()  # actual indices that met nothing, whatever `extras` says
    wrong_order: tuple[Pair, ...] = ()  # pairs that fit but stand out of order; not in `pairs`
    alternatives: Mapping[Position, int] = field(default_factory=dict)  # OneOf -> the alternative met or come nearest
    not_parallel: tuple[Position, ...] = ()  # InParallel whose calls stand in several turns
    unproven: tuple[Position, ...] = ()  # InParallel that only lacks turns: everything else is satisfied
