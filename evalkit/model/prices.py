"""Cost of tokens, by the user's own table. A model without a price has no cost: unknown is not zero.

There is no built-in table: prices change, and one that is out of date would be believed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from evalkit.model.transcript import ModelTurn, Usage

Prices = Mapping[str, Mapping[str, float]]


def find_price(models: Iterable[str | None], prices: Prices) -> Mapping[str, float] | None:
    """Find the first price for one of `models`, each looked up under its full name and without its kind and
    options: ``gemini:gemini-x?stream=1`` as ``gemini-x``. A price has `input` and `output`."""
    for model in models:
        for name in (
            () if model is None else (model, model.partition("?")[0], model.partition(":")[2].partition("?")[0])
        ):
            price = prices.get(name)
            if price and "input" in price and "output" in price:
                return price
    return None


def compute_cost(usage: Usage | None, models: Iterable[str | None], prices: Prices) -> float | None:
    """Compute US dollars by `prices`: model -> ``{input, output, cached?, reasoning?}`` per million tokens.

    Cached tokens are part of the input ones and cost `cached`, or as much as the others; reasoning tokens cost
    `reasoning`, or as much as output. None without tokens or without a price.
    """
    price = find_price(models, prices)
    if usage is None or price is None:
        return None
    parts = (
        (usage.input_tokens - usage.cached_tokens, price["input"]),
        (usage.cached_tokens, price.get("cached", price["input"])),
        (usage.output_tokens, price["output"]),
        (usage.reasoning_tokens, price.get("reasoning", price["output"])),
    )
    return sum(tokens * dollars for tokens, dollars in parts) / 1_000_000


def compute_turns_cost(turns: Iterable[ModelTurn], requested_model: str | None, prices: Prices) -> float | None:
    """Compute the cost of all turns, each by the model that it reports, else by the requested one. None as soon
    as one of them is unknown, or there are none."""
    costs = [compute_cost(turn.usage, (turn.model, requested_model), prices) for turn in turns]
    known_costs = [cost for cost in costs if cost is not None]
    return sum(known_costs) if costs and len(known_costs) == len(costs) else None
