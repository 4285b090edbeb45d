"""The desk of the small framework, which is always there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.adapters.desk import Desk, never
from tests.adapters.small.adapter import answered_by, run_agent
from tests.adapters.small.framework import Agent, Message, ModelReply, Tool, ToolCall


async def run_never(**arguments: Any) -> object:
    return never(**arguments)


def describe(*names: str) -> dict[str, Any]:
    properties = {name: {"type": "string"} for name in names}
    return {"type": "object", "properties": properties, "required": list(names), "additionalProperties": False}


TOOLS = {
    "check_warranty": Tool("Looks a serial number up.", describe("serial_number"), run_never),
    "send_reply": Tool("Sends a mail.", describe("to", "body"), run_never),
}


def build(*replies: Any) -> Agent:
    async def answer(messages: Sequence[Message]) -> ModelReply:
        asked = sum(isinstance(message, ModelReply) for message in messages)
        reply = replies[min(asked, len(replies) - 1)]
        if isinstance(reply, str):
            return ModelReply(reply)
        calls = (ToolCall(f"c{asked}.{n}", name, arguments) for n, (name, arguments) in enumerate(reply))
        return ModelReply(calls=tuple(calls))

    return Agent("desk", answer, TOOLS)


async def ask(agent: Agent, question: str) -> str:
    return (await agent.run(question))[0]


DESK = Desk(build=build, run_agent=run_agent, answered_by=answered_by, ask=ask)
