"""How a run of a framework's agent ended."""

from __future__ import annotations

from evalkit.agents.contract import COMPLETED
from evalkit.agents.task import Task

_STOP_REASONS = {"content_filter": "blocked", "length": "length", "malformed_call": "malformed_call"}


def find_stop_reason(task: Task) -> str:
    """Return how a run has ended by the last reply on record: some frameworks take one that was cut off for an answer,
    and the wire tells more than they do."""
    return _STOP_REASONS.get(task.turns[-1].finish_reason, COMPLETED) if task.turns else COMPLETED
