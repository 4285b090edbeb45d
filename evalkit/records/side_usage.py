"""What models took that are not the agent's: a feature asks them, to play a user or to grade."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field, to_builtins

from evalkit.jsonvalue import JsonDict
from evalkit.records.transcript import Usage
from evalkit.text.format import format_usd


class SideUsage(Struct, frozen=True, kw_only=True):
    """What the models of one feature took in a run, or in several. `+` adds runs.

    `counts` are of what they did, by names of the feature's own. `usage` and `cost_usd` are None if some is unknown.
    """

    counts: Mapping[str, int] = field(default_factory=dict)
    usage: Usage | None = Usage()
    cost_usd: float | None = 0.0
    is_live: bool = False  # a model was asked, which may answer otherwise another time

    def __add__(self, other: SideUsage) -> SideUsage:
        names = dict.fromkeys((*self.counts, *other.counts))
        usage, cost = other.usage, other.cost_usd
        return SideUsage(
            counts={name: self.counts.get(name, 0) + other.counts.get(name, 0) for name in names},
            usage=None if usage is None or self.usage is None else self.usage + usage,
            cost_usd=None if cost is None or self.cost_usd is None else self.cost_usd + cost,
            is_live=self.is_live or other.is_live,
        )

    def describe(self) -> str:
        """Return ``4,200 tokens in and 310 out, 0.012 USD``."""
        tokens = "tokens unknown"
        if self.usage is not None:
            output = self.usage.output_tokens + self.usage.reasoning_tokens
            tokens = f"{self.usage.input_tokens:,} tokens in and {output:,} out"
        return f"{tokens}, {'cost unknown' if self.cost_usd is None else format_usd(self.cost_usd)}"

    def to_json(self) -> JsonDict:
        """Return JSON data for the run file."""
        usage = None if self.usage is None else to_builtins(self.usage)
        return {**self.counts, "usage": usage, "cost_usd": self.cost_usd}
