"""What tokens cost. A model without a price has no cost: unknown is not zero."""

from __future__ import annotations

from collections.abc import Mapping

from evalkit.model.transcript import Usage


def cost_of(usage: Usage | None, model: str | None, prices: Mapping[str, Mapping[str, float]]) -> float | None:
    """US dollars, by `prices`: model -> ``{input, output, cached?, reasoning?}`` per million tokens.

    The model is looked up as it is called and without its kind (``gemini:``). Cached tokens are part of the input ones
    and cost `cached`, or as much as the others; reasoning tokens cost `reasoning`, or as much as output. None without
    tokens or without a price for the model.
    """
    if usage is None or model is None:
        return None
    price = prices.get(model) or prices.get(model.partition(":")[2].partition("?")[0])
    if not price or "input" not in price or "output" not in price:
        return None
    parts = (
        (usage.input_tokens - usage.cached_tokens, price["input"]),
        (usage.cached_tokens, price.get("cached", price["input"])),
        (usage.output_tokens, price["output"]),
        (usage.reasoning_tokens, price.get("reasoning", price["output"])),
    )
    return sum(tokens * dollars for tokens, dollars in parts) / 1_000_000
