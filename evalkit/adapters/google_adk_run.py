"""One run of an agent of Google ADK: who answers its tools, and who is told of its turns. Imports the framework."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

from msgspec.structs import replace

from evalkit.adapters.google_adk_tools import OUTPUTS, RUNS, install_hooks, is_control_tool, is_delegation
from evalkit.adapters.recording import AgentRunRecorder, TaskRecorder
from evalkit.errors import MockError
from evalkit.model.transcript import ModelTurn
from evalkit.providers.gemini_reply import read_reply

# By which the framework knows calls that had no id on the wire.
_OWN_ID = "adk-"


class AdkAgentRun:
    """Turns and calls of the agents that run in one context. `last` is the latest turn."""

    def __init__(self, recorder: TaskRecorder, as_is: Collection[str], model: Any = None) -> None:
        self.recorder = recorder
        self.model = model
        self.last_turn = ModelTurn()
        self._as_is = frozenset(as_is)
        # By id of what a request's callbacks share; kept with it, so that the id stays its own.
        self._requests: dict[int, tuple[Any, AgentRunRecorder, dict[str, Any]]] = {}
        # By id of the call. A person may confirm it in another run of the same case.
        self._run_recorders: dict[str, AgentRunRecorder] = recorder.histories.setdefault(("google-adk", "calls"), {})

    @contextmanager
    def enter(self) -> Iterator[None]:
        """While inside, what agents of this context do is this run's."""
        install_hooks()
        with RUNS.enter(self):
            yield

    # -- the turns

    def begin_request(self, context: Any, request: Any) -> None:
        named = [function for function in get_functions(request) if function.name not in OUTPUTS]
        self.recorder.declare((function.name, function.description, get_parameters(function)) for function in named)
        dialogue = AgentRunRecorder(self.recorder)
        tools = {**dict.fromkeys(function.name for function in named), **request.tools_dict}
        self._requests[id(context.actions)] = context.actions, dialogue, tools
        dialogue.begin_request()

    async def record_response(self, context: Any, response: Any) -> None:
        if response.partial:
            return
        _, dialogue, tools = self._requests[id(context.actions)]
        self.last_turn = turn = to_model_turn(response)
        calls = [call for call in response.get_function_calls() if call.name not in OUTPUTS]
        for call in calls:
            call.id = call.id or f"{_OWN_ID}{uuid4()}"
            self._run_recorders[call.id] = dialogue
        dialogue.record_reply(turn, [call.id for call in calls])
        for call in calls:
            if call.name not in tools:
                await dialogue.record_unknown_call(call.id, frozenset(tools) - OUTPUTS)
            elif is_delegation(tools[call.name]):
                await self._record_delegation(dialogue, call)

    async def _record_delegation(self, dialogue: AgentRunRecorder, call: Any) -> None:
        """ADK takes this call for itself and asks no tool: another agent goes on with a task of its own."""
        answer = await dialogue.call(call.name, call.args, call.id, real=lambda: None, as_is=True)
        if answer is not None:
            why = "its mode is 'task', so ADK runs it without a tool that could be answered"
            self.recorder.task.record_fault(MockError(f"the agent {call.name} can't be mocked: {why}"))

    # -- the tools

    async def call(self, tool: Any, arguments: Any, call_id: str | None, real: Callable[[], Any]) -> Any:
        options: Any = {"real": real, "as_is": self._is_as_is(tool), "unconverted": True}
        return await self._find_run_recorder(call_id).call(tool.name, arguments, call_id, **options)

    async def refuse_call(self, tool: Any, arguments: Any, call_id: str | None, reason: str) -> None:
        as_is = self._is_as_is(tool)
        await self._find_run_recorder(call_id).refuse_call(tool.name, arguments, call_id, reason, as_is=as_is)

    def _is_as_is(self, tool: Any) -> bool:
        return tool.name in self._as_is or is_control_tool(tool)

    def _find_run_recorder(self, call_id: str | None) -> AgentRunRecorder:
        return self._run_recorders.get(call_id or "") or AgentRunRecorder(self.recorder)


def to_model_turn(response: Any) -> ModelTurn:
    """The model turn that an LlmResponse is. Calls by which the framework takes output are its text."""
    data = response.model_dump(mode="json", by_alias=True, exclude_none=True)
    content = data.get("content") or {}
    ended = data.get("finishReason") or (data.get("errorCode") if not content.get("parts") else None)
    candidate = {"content": content, "finishReason": ended or "STOP", "finishMessage": data.get("errorMessage")}
    turn = read_reply({**data, "candidates": [candidate]})
    calls = tuple(call for call in turn.calls if call.name not in OUTPUTS)
    output_calls = [call for call in turn.calls if call.name in OUTPUTS]
    model_calls = tuple(
        replace(call, call_id=None) if (call.call_id or "").startswith(_OWN_ID) else call for call in calls
    )
    text = turn.text or "".join(json.dumps(call.arguments, ensure_ascii=False) for call in output_calls)
    finish = turn.finish_reason
    if not calls and (output_calls or finish == "stop"):
        finish = "stop" if text else "empty"
    return replace(turn, text=text, calls=model_calls, finish_reason=finish, raw=None, content=None)


def get_functions(request: Any) -> list[Any]:
    """The declarations in an LlmRequest."""
    tools = request.config.tools or ()
    return [function for tool in tools for function in getattr(tool, "function_declarations", None) or ()]


def get_parameters(function: Any) -> Any:
    """The JSON Schema of a declaration, which holds it in one of two forms."""
    if function.parameters_json_schema is not None:
        return function.parameters_json_schema
    if function.parameters is None:
        return {"type": "object", "properties": {}}
    return function.parameters.json_schema.model_dump(mode="json", by_alias=True, exclude_none=True)
