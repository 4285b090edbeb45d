"""What tokens cost, and that an unknown price is not zero."""

from __future__ import annotations

import pytest

from evalkit.records.settings import compute_cost
from evalkit.records.transcript import Usage

USAGE = Usage(input_tokens=1_000_000, cached_tokens=400_000, output_tokens=100_000, reasoning_tokens=50_000)
PRICES = {"m": {"input": 1.0, "output": 10.0}, "dear": {"input": 1.0, "cached": 0.5, "output": 10.0, "reasoning": 20.0}}


@pytest.mark.parametrize(
    ("usage", "model", "cost"),
    [
        (USAGE, "m", 2.5),
        (USAGE, "gemini:m", 2.5),
        (USAGE, "gemini:m?stream=1", 2.5),
        (USAGE, "dear", 2.8),
        (USAGE, "unknown", None),
        (USAGE, None, None),
        (None, "m", None),
        (Usage(), "m", 0.0),
    ],
)
def test_cost_is_tokens_times_price_and_unknown_without_either(
    usage: Usage | None, model: str | None, cost: float | None
) -> None:
    assert compute_cost(usage, (model,), PRICES) == (cost if cost is None else pytest.approx(cost))


def test_a_price_without_its_two_parts_is_no_price() -> None:
    assert compute_cost(USAGE, ("m",), {"m": {"input": 1.0}}) is None
