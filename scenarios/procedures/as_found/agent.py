"""The analyst as an audit found it: right answers, green tests, and up to two and a half times the model calls.

A native call of `search_procedure` finds nothing in TOOLS, which knows `tool_search_procedure`. That is taken for a
hiccup: the model is asked again, and then to write the call as text. The reader of that text puts `tool_` before the
name, and all is well. Nothing raises, nothing is logged, no number is kept.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import evalkit
from scenarios.procedures.as_found.declarations import DECLARATIONS
from scenarios.procedures.as_found.tools import TOOLS

INSTRUCTION = Path(__file__).with_name("instructions") / "analyst.md"
RETRIES = 1
_TEXT_CALL = re.compile(r'<TOOL>(\w+):\s*"([^"]*)"</TOOL>')


@evalkit.agent("procedures_as_found")
async def analyst(task: evalkit.Task) -> str:
    """Answer the question in `task.message`."""
    misses = 0
    while True:
        request = evalkit.ModelRequest(
            system=INSTRUCTION.read_text("utf-8"), messages=tuple(task.messages), functions=DECLARATIONS
        )
        turn = await task.turn(request)
        task.messages.append({"role": "model", "turn": turn})
        if turn.calls:
            results = [(call, looked_up(call.name, call.arguments)) for call in turn.calls]
            misses = misses + 1 if any(result is None for _, result in results) else 0
            advice = "no result, try again" if misses <= RETRIES else "no result; write the call as <TOOL>...</TOOL>"
            answers = [(call, {"error": advice} if result is None else result) for call, result in results]
            task.messages.append({"role": "function", "results": answers})
            continue
        written = _TEXT_CALL.search(turn.text)
        if written is None:
            return turn.text
        result = looked_up(f"tool_{written[1]}", {"query": written[2]})
        task.messages.append({"role": "user", "text": f"Result of {written[1]}: {json.dumps(result)}"})
        misses = 0


def looked_up(name: str, arguments: dict[str, Any]) -> Any:
    """What the tool finds; None if it finds nothing."""
    tool = TOOLS.get(name)
    if tool is None:
        return None
    try:
        return tool(**arguments)
    except TimeoutError as error:
        return {"error": str(error)}
