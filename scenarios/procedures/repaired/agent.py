"""The analyst, repaired: one name per function on every layer, no text fallback, and an unknown name is an error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import evalkit
from scenarios.procedures.repaired.declarations import DECLARATIONS
from scenarios.procedures.repaired.tools import TOOLS

INSTRUCTION = Path(__file__).with_name("instructions") / "analyst.md"


@evalkit.agent("procedures_repaired")
async def analyst(task: evalkit.Task) -> str:
    """Answer the question in `task.message`."""
    while True:
        request = evalkit.ModelRequest(
            system=INSTRUCTION.read_text("utf-8"), messages=tuple(task.messages), functions=DECLARATIONS
        )
        turn = await task.turn(request)
        task.messages.append({"role": "model", "turn": turn})
        if not turn.calls:
            return turn.text
        answers = [(call, looked_up(call.name, call.arguments)) for call in turn.calls]
        task.messages.append({"role": "function", "results": answers})


def looked_up(name: str, arguments: dict[str, Any]) -> Any:
    """What the tool finds. A name that no tool has is an error: whoever runs this must get to know."""
    try:
        return TOOLS[name](**arguments)
    except TimeoutError as error:
        return {"error": str(error)}
