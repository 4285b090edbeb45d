"""Splitting cases into shards, so that every machine, for itself, finds the same parts.

Without recorded durations cases are put in the order of a hash of their ids, and that row is cut into equal parts:
parts differ by one case at most, and a case that is added moves at most one case across each cut. With durations the
longest case goes first, each to the part that has least to do (Graham's rule of the longest processing time: no part
takes longer than 4/3 of what the best split's longest part would).
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256


@dataclass(frozen=True, slots=True)
class Shard:
    """Part `number` (from 1) of `total`."""

    number: int
    total: int

    def __str__(self) -> str:
        return f"{self.number}/{self.total}"


def parse_shard(text: str) -> Shard:
    """Parse ``"3/8"``. Raise ValueError for anything else, whose text says what was expected."""
    match = re.fullmatch(r"\s*([0-9]+)\s*/\s*([0-9]+)\s*", text)
    number, total = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 1 <= number <= total:
        raise ValueError("a shard I/N, with I from 1 to N, such as 3/8")
    return Shard(number, total)


def compute_fingerprint(case_ids: Iterable[str]) -> str:
    """Return 16 hexadecimal digits that are equal for equal ids in any order."""
    digest = sha256()
    for case_id in sorted(set(case_ids)):
        digest.update(case_id.encode("utf-8", "surrogatepass") + b"\0")
    return digest.hexdigest()[:16]


def split(case_ids: Sequence[str], total: int, seconds: Mapping[str, float] | None = None) -> dict[str, int]:
    """Return the number of each case's shard, from 1 to `total`.

    `seconds` are durations of an earlier run, by case id. A case that is not among them counts with the mean of those
    that are.
    """
    durations = {case_id: seconds[case_id] for case_id in case_ids if case_id in seconds} if seconds else {}
    row = sorted(set(case_ids), key=lambda case_id: sha256(case_id.encode("utf-8", "surrogatepass")).digest())
    if not any(durations.values()):
        return {case_id: place * total // len(row) + 1 for place, case_id in enumerate(row)}
    mean = sum(durations.values()) / len(durations)
    loads = [(0.0, number) for number in range(1, total + 1)]
    parts = {}
    for case_id in sorted(row, key=lambda case_id: -durations.get(case_id, mean)):  # stable: ties in order of the hash
        load, number = heapq.heappop(loads)
        parts[case_id] = number
        heapq.heappush(loads, (load + durations.get(case_id, mean), number))
    return parts
