"""What tokens cost, and that an unknown price is not zero."""

from __future__ import annotations

import pytest

from evalkit.records.prices import PriceList, compute_cost, list_prices
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
    assert compute_cost(usage, (model,), PriceList(table=PRICES)) == (cost if cost is None else pytest.approx(cost))


def test_a_price_without_its_two_parts_is_no_price() -> None:
    assert compute_cost(USAGE, ("m",), PriceList(table={"m": {"input": 1.0}})) is None


def test_a_price_of_ones_own_says_its_date() -> None:
    price = PriceList(table={"m": {"input": 1.0, "output": 2.0, "date": "2026-11-01"}}).find(("gemini:m",))

    assert price is not None
    assert price.describe() == "m by [tool.evalkit.prices] of 2026-11-01"


KNOWN = "claude-sonnet-4-5"


def test_what_the_catalogue_knows_costs_what_it_says() -> None:
    catalogue = pytest.importorskip("genai_prices")
    counts = catalogue.Usage(input_tokens=1_000_000, cache_read_tokens=400_000, output_tokens=150_000)
    expected = float(catalogue.calc_price(counts, KNOWN, provider_id="anthropic").total_price)
    prices = PriceList(has_catalogue=True)

    assert compute_cost(USAGE, (f"{KNOWN}-20250929", f"anthropic:{KNOWN}?stream=1"), prices) == pytest.approx(expected)
    (price,) = list_prices([f"{KNOWN}-20250929"], [f"anthropic:{KNOWN}"], prices)
    assert price.to_json() == {"model": KNOWN, "source": f"genai-prices {catalogue.__version__}", "date": None}


@pytest.mark.parametrize(
    ("models", "is_known"),
    [
        ((f"anthropic:{KNOWN}",), True),
        ((KNOWN,), True),  # a client of an agent's own
        (("openai:gpt-5?base_url=https://api.openai.com/v1",), True),
        (("gpt-5", "openai:gpt-5?base_url=http://127.0.0.1:1/v1"), False),
        (("gpt-5", "ollama:gpt-5"), False),
        (("gpt-5", "house:gpt-5"), False),
        (("gemini:nobody-knows-this",), False),
        ((None,), False),
    ],
)
def test_only_the_service_that_was_asked_has_a_price(models: tuple[str | None, ...], is_known: bool) -> None:
    pytest.importorskip("genai_prices")

    assert (PriceList(has_catalogue=True).find(models) is not None) == is_known
    assert PriceList().find(models) is None


def test_a_price_of_ones_own_comes_first() -> None:
    pytest.importorskip("genai_prices")
    table = {KNOWN: {"input": 1.0, "output": 1.0}}

    price = PriceList(table=table, has_catalogue=True).find((f"anthropic:{KNOWN}",))

    assert price is not None
    assert price.source == "[tool.evalkit.prices]"
