"""The seeds of several draws, derived from one."""

from __future__ import annotations

import hashlib

from evalkit.records.settings import derive_seed


def test_a_seed_is_derived_by_the_formula_of_the_page() -> None:
    """docs/live-models.md, "What a request says"."""
    expected = int(hashlib.sha256(b"7/run 2").hexdigest()[:8], 16) // 2

    assert (derive_seed(7), derive_seed(7, "run 2"), derive_seed(None, "run 2")) == (7, expected, None)
    drawn = [derive_seed(seed, f"run {number}") for seed in (0, 1, 2) for number in range(2, 100)]
    assert len(set(drawn)) == len(drawn)
    assert all(seed is not None and 0 <= seed < 2**31 for seed in drawn)
