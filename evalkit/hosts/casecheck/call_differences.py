"""Differences between the calls of two runs: a call more, a call less, other arguments."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence

from evalkit.jsonvalue import is_json_equal
from evalkit.operators.base import Mismatch
from evalkit.operators.values import Equal
from evalkit.records.transcript import FunctionCall
from evalkit.text.format import format_arguments

PROSE = re.compile(r"[^\W\d_]\s+[^\W\d_]")  # two words, one after the other: no id, date or status
_LONGEST = 200  # characters of a call


def find_call_differences(
    usual: Sequence[FunctionCall],
    actual: Sequence[FunctionCall],
    *,
    is_accepted: Callable[[Mismatch], bool] = lambda mismatch: False,
) -> list[str]:
    """Describe each difference of the `actual` calls from the `usual` ones, whatever their order.

    Calls of one function are paired: equal ones first, the rest in their order. `is_accepted` says which differences of
    arguments are none.
    """
    differences: list[str] = []
    for ours, theirs in _pair_calls(usual, actual):
        if theirs is None:
            differences += [] if ours is None else [f"missing call: {format_call(ours)}"]
        elif ours is None:
            differences.append(f"unexpected call {theirs.index + 1}: {format_call(theirs)}")
        else:
            mismatches = Equal(ours.arguments).explain(theirs.arguments)
            place = f"call {theirs.index + 1}, {theirs.name}"
            differences += [f"{place}: {mismatch}" for mismatch in mismatches if not is_accepted(mismatch)]
    return differences


def _pair_calls(
    usual: Iterable[FunctionCall], actual: Iterable[FunctionCall]
) -> Iterator[tuple[FunctionCall | None, FunctionCall | None]]:
    waiting: dict[str, list[FunctionCall]] = defaultdict(list)
    for call in usual:
        waiting[call.name].append(call)
    unpaired: list[FunctionCall] = []
    for call in actual:
        same = waiting[call.name]
        index = next((i for i, peer in enumerate(same) if is_json_equal(peer.arguments, call.arguments)), None)
        if index is None:
            unpaired.append(call)
        else:
            del same[index]
    for call in unpaired:
        yield (waiting[call.name].pop(0) if waiting[call.name] else None), call
    for calls in waiting.values():
        yield from ((call, None) for call in calls)


def is_prose(mismatch: Mismatch) -> bool:
    """Return whether both texts are prose, which a model words anew each time it is asked."""
    return all(isinstance(value, str) and PROSE.search(value) for value in (mismatch.expected, mismatch.actual))


def format_call(call: FunctionCall) -> str:
    """Write a call as ``create_ticket(priority="high")``."""
    return f"{call.name}({format_arguments(call.arguments, _LONGEST)})"
