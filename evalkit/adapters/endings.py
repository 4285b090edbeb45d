"""How a run of a framework's agent ended."""

from __future__ import annotations

from evalkit.agents.contract import COMPLETED
from evalkit.agents.task import Task

_STOP_REASONS = {"content_filter": "blocked", "length": "length", "malformed_call": "malformed_call"}


def find_stop_reason(task: Task) -> str:
    """Return the stop reason of a run by the last reply on record.

    Some frameworks take a reply that was cut off or refused for an answer, so their own word does not do.
    """
    return _STOP_REASONS.get(task.turns[-1].finish_reason, COMPLETED) if task.turns else COMPLETED
