"""Cohen's kappa: reference values, the properties that define it, and an interval that holds for few items too."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalkit.features.graders.agreement import measure_agreement

# Reference values of statsmodels 0.14 (`cohens_kappa`, also with wt="quadratic"): kappa and its standard error.
REFERENCE = [
    ([[20, 5], [10, 15]], 0.4, 0.126996, 0.4, 0.126996),
    ([[118, 5], [2, 75]], 0.926625, 0.027227, 0.926625, 0.027227),
    (
        [[22, 2, 2, 0, 0], [5, 7, 14, 0, 0], [0, 2, 36, 0, 0], [0, 1, 14, 7, 0], [0, 0, 3, 0, 3]],
        0.498418,
        0.056604,
        0.778564,
        0.040915,
    ),
    ([[11, 3, 1], [1, 3, 0], [4, 8, 17]], 0.450875, 0.094571, 0.583514, 0.108342),
]


@pytest.mark.parametrize(("matrix", "kappa", "error", "weighted", "weighted_error"), REFERENCE)
def test_kappa_and_its_error_are_those_of_the_literature(
    matrix: list[list[int]], kappa: float, error: float, weighted: float, weighted_error: float
) -> None:
    plain, scaled = measure_agreement(matrix), measure_agreement(matrix, is_scale=True)

    assert plain.kappa == pytest.approx(kappa, abs=1e-6)
    assert plain.low is not None
    assert plain.low <= kappa - 1.96 * error + 1e-5
    assert scaled.kappa == pytest.approx(weighted, abs=1e-6)
    assert scaled.low == pytest.approx(weighted - 1.959964 * weighted_error, abs=1e-5)
    assert scaled.high == pytest.approx(min(1, weighted + 1.959964 * weighted_error), abs=1e-5)


def test_perfect_agreement_of_few_is_no_proof() -> None:
    agreement = measure_agreement([[2, 0], [0, 2]])

    assert (agreement.kappa, agreement.high) == (1.0, 1.0)
    assert agreement.low is not None
    assert agreement.low < 0.1
    many = measure_agreement([[200, 0], [0, 200]]).low
    assert many is not None
    assert many > 0.97


@pytest.mark.parametrize(
    ("matrix", "items", "agreed"), [([[0, 0], [0, 0]], 0, 0), ([[7, 0], [0, 0]], 7, 7), ([[0, 0], [0, 3]], 3, 3)]
)
def test_where_all_is_in_one_category_there_is_no_kappa(matrix: list[list[int]], items: int, agreed: int) -> None:
    agreement = measure_agreement(matrix)

    assert (agreement.items, agreement.agreed) == (items, agreed)
    assert (agreement.kappa, agreement.low, agreement.high) == (None, None, None)


counts = st.integers(0, 40)


@given(st.lists(st.lists(counts, min_size=3, max_size=3), min_size=3, max_size=3), st.booleans())
def test_it_does_not_matter_who_is_called_first(matrix: list[list[int]], is_scale: bool) -> None:
    turned = [list(column) for column in zip(*matrix, strict=True)]
    first, second = measure_agreement(matrix, is_scale=is_scale), measure_agreement(turned, is_scale=is_scale)

    for one, other in ((first.kappa, second.kappa), (first.low, second.low), (first.high, second.high)):
        assert one == pytest.approx(other, abs=1e-9)
    if first.kappa is not None and first.low is not None and first.high is not None:
        assert -1 <= first.low <= first.kappa + 1e-9
        assert first.kappa - 1e-9 <= first.high <= 1


@pytest.mark.parametrize(
    ("shares", "items"),
    [((0.45, 0.05, 0.05, 0.45), 20), ((0.85, 0.05, 0.05, 0.05), 50), ((0.48, 0.02, 0.0, 0.5), 20)],
)
def test_the_interval_holds_the_truth_as_often_as_it_says(shares: tuple[float, ...], items: int) -> None:
    both, first, second, none = shares
    chance = (both + first) * (both + second) + (none + second) * (none + first)
    truth = (both + none - chance) / (1 - chance)
    drawn = random.Random(7)
    held = total = 0
    for _ in range(400):
        cells = drawn.choices(range(4), shares, k=items)
        agreement = measure_agreement([[cells.count(0), cells.count(1)], [cells.count(2), cells.count(3)]])
        if agreement.low is not None and agreement.high is not None:
            total += 1
            held += agreement.low <= truth <= agreement.high

    assert held / total >= 0.94
