"""A framework of agents at its smallest, for tests: a model that is asked, and tools that are run, until it answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct


class ToolCall(Struct, frozen=True):
    """A call that a model asks for."""

    id: str
    name: str
    arguments: dict[str, Any]


class ModelReply(Struct, frozen=True):
    """What a model says to all that was said before."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()


class Tool(Struct, frozen=True):
    """A function that a model may call."""

    description: str
    parameters: dict[str, Any]
    run: Callable[..., Awaitable[object]]


Message = ModelReply | str | tuple[ToolCall, object]  # of the model, of the user, the result of a call


class Agent:
    """``await agent.run(text, history)`` returns the answer, and the history with it."""

    def __init__(
        self, name: str, model: Callable[[Sequence[Message]], Awaitable[ModelReply]], tools: Mapping[str, Tool]
    ) -> None:
        self.name = name
        self.model = model
        self.tools = tools

    async def run(self, text: str, history: Sequence[Message] = ()) -> tuple[str, list[Message]]:
        messages: list[Message] = [*history, text]
        while True:
            reply = await self.ask_model(messages)
            messages.append(reply)
            if not reply.calls:
                return reply.text, messages
            results = await asyncio.gather(*map(self.run_tool, reply.calls))
            messages += zip(reply.calls, results, strict=True)

    async def ask_model(self, messages: Sequence[Message]) -> ModelReply:
        return await self.model(messages)

    async def run_tool(self, call: ToolCall) -> object:
        tool = self.tools.get(call.name)
        return f"there is no tool {call.name}" if tool is None else await tool.run(**call.arguments)
