"""The hooks of comparisons."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from evalkit.features.compare.session import Comparing
from evalkit.features.compare.variants import NAME
from evalkit.hooks import Comparison, Feature, Options, SessionPart
from evalkit.lazy import LazyModule

if TYPE_CHECKING:
    from evalkit.features.compare import judging
    from evalkit.gate.outcomes import GateEvidence
else:
    judging = LazyModule("evalkit.features.compare.judging")


class Compare(Feature):
    """Several variants of each case."""

    name = NAME

    def configure(self, options: Options) -> SessionPart:
        return Comparing.read(options)

    def add_up(self, runs: Sequence[Any]) -> Any:
        """Keep what made no difference in any run."""
        return tuple(sorted(set.intersection(*(set(run or ()) for run in runs)))) if runs else None

    def compare_parts(self, parts: Sequence[GateEvidence]) -> Comparison:
        return judging.judge_variants(parts)
