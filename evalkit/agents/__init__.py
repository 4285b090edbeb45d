"""Agents under test: the contract ``agent(task) -> str | Reply``, instruction files, the function-calling loop.

Each name is imported when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from evalkit.lazily import imported_on_use

if TYPE_CHECKING:
    from evalkit.agents.instruction import Instruction as Instruction
    from evalkit.agents.instruction import load_instruction as load_instruction
    from evalkit.agents.loop import run_loop as run_loop
    from evalkit.agents.registration import agent as agent
    from evalkit.agents.reply import Reply as Reply
    from evalkit.agents.resolution import AgentUnderTest as AgentUnderTest
    from evalkit.agents.resolution import resolve_agent as resolve_agent
    from evalkit.agents.settings import TaskSettings as TaskSettings
    from evalkit.agents.task import Task as Task

_HOMES = {
    "AgentUnderTest": "resolution",
    "Instruction": "instruction",
    "Reply": "reply",
    "Task": "task",
    "TaskSettings": "settings",
    "agent": "registration",
    "load_instruction": "instruction",
    "resolve_agent": "resolution",
    "run_loop": "loop",
}

__all__ = [*_HOMES]

__getattr__ = imported_on_use(__name__, _HOMES)
