"""What graders did in a run, and what that took: apart from the agents, whose tokens and money it is no part of."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from evalkit.model.transcript import Grading, Usage


class Grades(Struct, frozen=True):
    """Counts of criteria, and what models took to grade them. `usage` and `cost_usd` are None if some is unknown."""

    graded: int = 0
    not_met: int = 0
    hand_written: int = 0
    answers: int = 0  # of models
    usage: Usage | None = Usage()
    cost_usd: float | None = 0.0

    def with_gradings(self, gradings: Iterable[Grading]) -> Grades:
        """These and those of one run."""
        grades = self
        for grading in gradings:
            if grading.grades or grading.usage is not None:
                grades = grades._add_grading(grading)
        return grades

    def _add_grading(self, grading: Grading) -> Grades:
        count = len(grading.grades)
        counted = replace(
            self,
            graded=self.graded + count,
            not_met=self.not_met + sum(not grade.passed for grade in grading.grades),
            hand_written=self.hand_written + (count if grading.is_hand_written else 0),
        )
        if grading.is_hand_written:
            return counted
        usage, cost = grading.usage, grading.cost_usd
        return replace(
            counted,
            answers=self.answers + 1,
            usage=None if usage is None or self.usage is None else self.usage + usage,
            cost_usd=None if cost is None or self.cost_usd is None else self.cost_usd + cost,
        )

    def to_json(self) -> dict[str, Any]:
        """For the run file."""
        from evalkit.model.codec import encode

        usage = None if self.usage is None else encode(self.usage)
        counts = {name: getattr(self, name) for name in ("graded", "not_met", "hand_written", "answers")}
        return {**counts, "usage": usage, "cost_usd": self.cost_usd}
