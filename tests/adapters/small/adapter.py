"""The adapter of the small framework: all that an adapter does, on the parts that `evalkit.adapters.common` has for it.

Three methods of the framework are hooked: a run begins, the model is asked, a tool is run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial

from msgspec import Struct

import evalkit
from evalkit.adapters.common import (
    ActiveRuns,
    AgentRunRecorder,
    CaseScope,
    TaskRecorder,
    read_call,
    to_reply,
)
from evalkit.records.transcript import ModelTurn
from tests.adapters.small.framework import Agent, Message, ModelReply, ToolCall


class AgentRun(Struct, frozen=True):
    """A run of one agent: the case that it belongs to, and what records it."""

    scope: CaseScope
    run_recorder: AgentRunRecorder


_current: ContextVar[AgentRun | None] = ContextVar("small_framework_run", default=None)


async def run_agent(
    task: evalkit.Task, agent: Agent, *, message: str | None = None, as_is: Collection[str] = ()
) -> evalkit.Reply:
    """Run an agent on what the user says, with the case's functions for its tools."""
    recorder = TaskRecorder.get(task)
    with answered_by(task, as_is=as_is):
        text, history = await agent.run(task.message if message is None else message, recorder.get_history(agent) or ())
    recorder.keep_history(agent, history)
    return to_reply(text)


@contextmanager
def answered_by(task: evalkit.Task, *, as_is: Collection[str] = ()) -> Iterator[None]:
    """Answer the tools of every agent that this context runs with the case's functions while inside."""
    with SCOPES.enter(CaseScope.build(task, as_is, None)):
        yield


def install_hooks() -> None:
    """Make every run of an agent check whether its context belongs to a case."""
    run, ask_model, run_tool = Agent.run, Agent.ask_model, Agent.run_tool

    async def run_recorded(self: Agent, text: str, history: Sequence[Message] = ()) -> tuple[str, list[Message]]:
        scope = SCOPES.find(f"the agent '{self.name}'")
        token = _current.set(None if scope is None else AgentRun(scope, AgentRunRecorder(scope.recorder)))
        try:
            return await run(self, text, history)
        finally:
            _current.reset(token)

    async def ask_recorded(self: Agent, messages: Sequence[Message]) -> ModelReply:
        current = _current.get()
        if current is None:
            return await ask_model(self, messages)
        current.scope.recorder.declare((name, tool.description, tool.parameters) for name, tool in self.tools.items())
        current.run_recorder.begin_request()
        reply = await ask_model(self, messages)
        calls = tuple(read_call(call.name, call.arguments, call.id) for call in reply.calls)
        finish_reason = "tool_calls" if calls else "stop"
        current.run_recorder.record_reply(ModelTurn(text=reply.text, calls=calls, finish_reason=finish_reason))
        for call in reply.calls:
            if call.name not in self.tools:
                await current.run_recorder.record_unknown_call(call.id, self.tools)
        return reply

    async def run_answered(self: Agent, call: ToolCall) -> object:
        current, real = _current.get(), partial(run_tool, self, call)
        if current is None or call.name not in self.tools:
            return await real()
        as_is = call.name in current.scope.as_is
        return await current.run_recorder.call(call.name, call.arguments, call.id, real=real, as_is=as_is)

    Agent.run, Agent.ask_model, Agent.run_tool = run_recorded, ask_recorded, run_answered  # type: ignore[method-assign]


SCOPES: ActiveRuns[CaseScope] = ActiveRuns("small", install_hooks)
