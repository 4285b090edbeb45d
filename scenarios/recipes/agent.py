"""A kitchen assistant over a model that writes its function calls as text.

Such a model has learnt no other way, or its server passes none on: what it wants to call stands in its reply, and
rarely in the form that it was asked for. evalkit's function-calling loop reads the calls (`evalkit.parse_text_calls`),
answers them in text, and tells the model what it wrote wrong (`settings.correct_text_calls`). Left to the agent is what
the reader of the chat gets to see: the prose of every reply, without the calls in it.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from msgspec.structs import replace

import evalkit

INSTRUCTION = Path(__file__).with_name("kitchen.md")


@evalkit.agent("recipes")
async def recipes(task: evalkit.Task) -> evalkit.Reply:
    """Answer what the user says now. The reply's text is the chat as the user reads it."""
    before = len(task.turns)
    reply = await task.run_instruction(INSTRUCTION)
    said = (readable(turn.text, task.functions.declarations) for turn in task.turns[before:])
    return replace(reply, text="\n\n".join(prose for prose in said if prose))


def readable(text: str, functions: Iterable[Any]) -> str:
    """The prose of a model's reply: no calls, nor what set out to be one and was refused or cut off."""
    parsed = evalkit.parse_text_calls(text, functions)
    prose = parsed.text
    for attempt in (*(refused.raw for refused in parsed.rejected), parsed.unfinished):
        prose = prose.replace(attempt, "") if attempt else prose
    return prose.strip()
