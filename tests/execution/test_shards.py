"""Splitting into shards: every case once, the same on every machine, even, and steady when cases come and go."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalkit.execution.shards import Shard, compute_fingerprint, parse_shard, split

ids = st.lists(st.text(min_size=1, max_size=12), unique=True, max_size=60)
totals = st.integers(1, 9)
seconds = st.dictionaries(st.text(min_size=1, max_size=2), st.floats(0, 1e6), max_size=30)


@given(ids, totals, seconds)
def test_every_case_is_in_exactly_one_shard_whatever_the_order(case_ids: list[str], total: int, known: object) -> None:
    parts = split(case_ids, total, known)  # type: ignore[arg-type]
    assert set(parts) == set(case_ids)
    assert set(parts.values()) <= set(range(1, total + 1))
    assert split(case_ids[::-1], total, known) == parts  # type: ignore[arg-type]


@given(ids, totals)
def test_without_durations_shards_differ_by_one_case_at_most(case_ids: list[str], total: int) -> None:
    sizes = Counter(split(case_ids, total).values())
    numbers = [sizes[number] for number in range(1, total + 1)]
    assert max(numbers) - min(numbers) <= 1


@given(ids, totals, st.text(min_size=1, max_size=12))
def test_a_case_that_is_added_moves_at_most_one_across_each_cut(case_ids: list[str], total: int, new: str) -> None:
    before = split([case_id for case_id in case_ids if case_id != new], total)
    after = split([*dict.fromkeys((*case_ids, new))], total)
    assert sum(after[case_id] != number for case_id, number in before.items()) <= total - 1


def test_the_split_is_pinned() -> None:
    """Machines with other versions of Python, or of evalkit, must find the same."""
    case_ids = [f"scenarios/good_{number:03}.yaml" for number in range(6)]
    assert [split(case_ids, 3)[case_id] for case_id in case_ids] == [3, 1, 3, 2, 2, 1]
    assert compute_fingerprint(case_ids) == compute_fingerprint(case_ids[::-1]) == "536b1538dba93435"


@given(st.dictionaries(st.text(min_size=1, max_size=4), st.floats(0.01, 100), min_size=1, max_size=40), totals)
def test_with_durations_no_shard_is_far_from_the_best_split(known: dict[str, float], total: int) -> None:
    """Graham: at most 4/3 of the best, which takes at least as long as the mean, and as the longest case."""
    parts = split(list(known), total, known)
    loads: Counter[int] = Counter()
    for case_id, number in parts.items():
        loads[number] += known[case_id]  # type: ignore[assignment]  # a Counter may hold floats
    longest = sorted(known.values(), reverse=True)
    pair = longest[total - 1] + longest[total] if len(longest) > total else 0.0
    best = max(sum(longest) / total, longest[0], pair)
    assert max(loads.values()) <= best * 4 / 3 + 1e-9


def test_a_case_without_a_duration_counts_as_the_mean_of_the_others() -> None:
    parts = split(["slow", "quick", "new"], 2, {"slow": 9.0, "quick": 1.0, "gone": 99.0})
    assert parts["slow"] != parts["new"] == parts["quick"]


@pytest.mark.parametrize("known", [{}, {"gone": 3.0}, {"a": 0.0, "b": 0.0}, None])
def test_durations_that_say_nothing_are_no_durations(known: dict[str, float] | None) -> None:
    assert split(["a", "b", "c"], 2, known) == split(["a", "b", "c"], 2)


def test_a_shard_is_a_number_of_a_total() -> None:
    assert parse_shard(" 3/8 ") == Shard(3, 8)
    assert str(Shard(3, 8)) == "3/8"


@pytest.mark.parametrize("text", ["", "3", "0/3", "4/3", "1/0", "-1/3", "a/b", "1/3/5", "1.0/3", "٣/٨"])
def test_what_is_no_shard_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^a shard I/N, with I from 1 to N, such as 3/8$"):
        parse_shard(text)
