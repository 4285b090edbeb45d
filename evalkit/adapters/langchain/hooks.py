"""The hooks into LangChain's tools and models, and the task's own model. Imports the framework.

A graph holds its tools where nothing can be wrapped around them, so the hooks are in the one place that all calls pass:
`BaseTool.run` and `arun`. There, in the context of a run, a copy replaces the tool. It equals the tool in everything
(its schema, its callbacks, its handling of errors, its conversion of results), but its function asks the dispatcher. In
every other context tools are unchanged. The hooks stay once they are in: calls of an abandoned agent are refused.
"""

from __future__ import annotations

import asyncio
import functools
import json
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import BaseTool, StructuredTool, Tool, ToolException
from langchain_core.tracers.context import register_configure_hook
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import Field, ValidationError

from evalkit.adapters.common import ActiveRuns, AgentRunRecorder, TaskModelConversation, TaskRecorder, run_once
from evalkit.errors import FunctionError
from evalkit.functions.targets import wait_for
from evalkit.model.transcript import ModelCall, ModelTurn, Usage
from evalkit.providers.gemini import FINISH_REASONS


class TooManyTurnsError(Exception):
    """An agent asks its model more often than `settings.max_iterations`."""


class GraphRun:
    """Turns and calls of the graphs that run in one context. Each agent may ask its model `limit` times."""

    def __init__(self, recorder: TaskRecorder, as_is: Collection[str], limit: int | None = None) -> None:
        self.recorder = recorder
        self.last_turn = ModelTurn()
        self._limit = limit
        self._as_is = frozenset(as_is)
        self._open_requests: dict[Any, AgentRunRecorder] = {}
        self._request_counts: Counter[str] = Counter()
        # By id of the call, the latest first. A person may approve it in another run of the same case.
        self._by_call_id: dict[str, list[AgentRunRecorder]] = recorder.histories.setdefault(("langchain", "calls"), {})
        self._unanswered: set[tuple[str, str]] = set()  # id and name
        self._names: set[str] = set()
        self._lock = threading.Lock()

    @contextmanager
    def enter(self) -> Iterator[None]:
        """Make this the run of the graphs in this context while inside."""
        install_hooks()
        token = HANDLER.set(TurnHandler(self))
        try:
            with RUNS.enter(self):
                yield
        finally:
            HANDLER.reset(token)

    # -- the tools

    def declare_tool(self, tool: Any) -> None:
        with self._lock:
            if tool.name in self._names:
                return
            self._names.add(tool.name)
        parameters = convert_to_openai_tool(tool)["function"].get("parameters")
        self.recorder.declare([(tool.name, tool.description, parameters)])

    async def call(self, name: str, arguments: Any, call_id: str | None, real: Callable[[], Awaitable[Any]]) -> Any:
        run_recorder = self._find_run_recorder(name, arguments, call_id)
        as_is = name in self._as_is
        return await run_recorder.call(name, arguments, call_id, real=real, as_is=as_is, unconverted=True)

    async def refuse_call(self, name: str, arguments: Any, call_id: str | None, reason: str) -> None:
        run_recorder = self._find_run_recorder(name, arguments, call_id)
        await run_recorder.refuse_call(name, arguments, call_id, reason, as_is=name in self._as_is)

    def _find_run_recorder(self, name: str, arguments: Any, call_id: str | None) -> AgentRunRecorder:
        """Find the agent's run that asked for the call: agents side by side may give their calls the same ids."""
        self._unanswered.discard((call_id or "", name))
        candidates = self._by_call_id.get(call_id or "", [])
        best = max(candidates, key=lambda run_recorder: run_recorder.score_call(name, arguments, call_id), default=None)
        is_match = best is not None and best.score_call(name, arguments, call_id) > 1
        return best if best is not None and is_match else AgentRunRecorder(self.recorder)

    # -- the turns

    def begin_request(self, request: Any, messages: Sequence[Any], place: str) -> None:
        self.record_unknown_calls(messages)
        agent = place.rpartition(":")[0]  # without the id of this step
        self._request_counts[agent] += 1
        if place and self._limit is not None and self._request_counts[agent] > self._limit:
            raise TooManyTurnsError(f"the model was asked {self._request_counts[agent]} times")
        self._open_requests[request] = run_recorder = AgentRunRecorder(self.recorder)
        run_recorder.begin_request()

    def record_turn(self, request: Any, turn: ModelTurn) -> None:
        run_recorder = self._open_requests.pop(request)
        run_recorder.record_reply(turn)
        self.last_turn = turn
        for call in turn.calls:
            if call.malformed is not None:
                wait_for(run_recorder.refuse_call(call.name, call.arguments, call.call_id, call.malformed))
            elif call.call_id is not None:
                self._by_call_id.setdefault(call.call_id, []).insert(0, run_recorder)
                self._unanswered.add((call.call_id, call.name))

    def drop_request(self, request: Any) -> None:
        self._open_requests.pop(request, None)

    def record_unknown_calls(self, messages: Iterable[Any]) -> None:
        """Record calls of tools that do not exist: the graph has answered them with an error, and asked nobody."""
        for message in messages:
            if getattr(message, "type", None) != "tool" or (message.tool_call_id, message.name) not in self._unanswered:
                continue
            run_recorder = self._find_run_recorder(message.name, None, message.tool_call_id)
            if message.status == "error" and message.name not in self._names:
                wait_for(run_recorder.record_unknown_call(message.tool_call_id, self._names))


def find_tools(graph: Any) -> Iterator[Any]:
    """Find the tools in a graph's tool nodes, subgraphs included. Others are declared when they are called."""
    for node in getattr(graph, "nodes", {}).values():
        runnable = getattr(node, "bound", node)
        yield from getattr(runnable, "tools_by_name", {}).values()
        if isinstance(getattr(runnable, "nodes", None), Mapping):
            yield from find_tools(runnable)


RUNS: ActiveRuns[GraphRun] = ActiveRuns("langchain")


@run_once
def install_hooks() -> None:
    """Make every tool check whether its context belongs to a run. Once per process, for good."""
    for kind, name, wrap in (
        (BaseTool, "run", _wrap_run),
        (BaseTool, "arun", _wrap_arun),
        (StructuredTool, "ainvoke", _wrap_ainvoke),
        (Tool, "ainvoke", _wrap_ainvoke),
    ):
        setattr(kind, name, wrap(getattr(kind, name)))


def _wrap_run(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def run(self: Any, tool_input: Any, *args: Any, **kwargs: Any) -> Any:
        return original(_replace_tool(self, tool_input, kwargs.get("tool_call_id")), tool_input, *args, **kwargs)

    return run


def _wrap_arun(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    async def arun(self: Any, tool_input: Any, *args: Any, **kwargs: Any) -> Any:
        return await original(_replace_tool(self, tool_input, kwargs.get("tool_call_id")), tool_input, *args, **kwargs)

    return arun


def _wrap_ainvoke(original: Callable[..., Any]) -> Callable[..., Any]:
    """Keep sync functions out of threads, in which parallel calls would be recorded in any order."""

    @functools.wraps(original)
    async def ainvoke(self: Any, *args: Any, **kwargs: Any) -> Any:
        if RUNS.find(f"the tool {self.name}") is None:
            return await original(self, *args, **kwargs)
        return await BaseTool.ainvoke(self, *args, **kwargs)

    return ainvoke


def _replace_tool(tool: Any, tool_input: Any, call_id: str | None) -> Any:
    """Return the copy that runs in place of `tool`; the tool itself outside of every run."""
    run = RUNS.find(f"the tool {tool.name}")
    if run is None:
        return tool
    run.declare_tool(tool)
    return _ToolCall(run, tool, tool_input, call_id).substitute()


class _ToolCall:
    """A call of a tool that the dispatcher answers."""

    def __init__(self, run: GraphRun, tool: Any, tool_input: Any, call_id: str | None) -> None:
        self._run = run
        self._tool = tool
        self._call: tuple[str, Any, str | None] = (tool.name, _get_arguments(tool, tool_input), call_id)
        self._misfit: Exception | None = None

    def substitute(self) -> Any:
        """Copy the tool so that the copy asks the dispatcher where it would run its function."""
        sync, coroutine = self._tool._run, self._tool._arun

        @functools.wraps(sync)
        def _run(*args: Any, **kwargs: Any) -> Any:
            return wait_for(self._call_function(lambda: asyncio.to_thread(sync, *args, **kwargs)))

        @functools.wraps(coroutine)
        async def _arun(*args: Any, **kwargs: Any) -> Any:
            return await self._call_function(lambda: coroutine(*args, **kwargs))

        copy = self._tool.model_copy()
        # Not by setattr, which a tool checks as if they were its fields.
        vars(copy).update(_run=_run, _arun=_arun, _to_args_and_kwargs=self._parse_input)
        return copy

    def _parse_input(self, tool_input: Any, tool_call_id: str | None) -> Any:
        """Parse the input as the tool does. An error is raised only where the function would run."""
        try:
            return self._tool._to_args_and_kwargs(tool_input, tool_call_id)
        except Exception as error:
            self._misfit = error
            return (), {}

    async def _call_function(self, real: Callable[[], Awaitable[Any]]) -> Any:
        if self._misfit is not None:
            await self._run.refuse_call(*self._call, _explain_misfit(self._misfit))
            raise self._misfit
        try:
            value = await self._run.call(*self._call, real)
        except FunctionError as error:
            raise ToolException(error.message) from error
        mocked_pair = self._tool.response_format == "content_and_artifact" and not isinstance(value, tuple)
        return (value, None) if mocked_pair else value


def _get_arguments(tool: Any, tool_input: Any) -> Any:
    """Return the arguments without those that the framework injects."""
    if isinstance(tool_input, dict):
        return tool._filter_injected_args(tool_input)
    return {next(iter(tool.args), "input"): tool_input}


def _explain_misfit(error: Exception) -> str:
    if not isinstance(error, ValidationError):
        return str(error)
    lines = (f"{'.'.join(map(str, item['loc'])) or 'the arguments'}: {item['msg']}" for item in error.errors())
    return "; ".join(lines)


# Values of services under `finish_reason`, `stop_reason` or `done_reason`, in lower case.
FINISHES = {
    **{name.lower(): finish for name, finish in FINISH_REASONS.items()},
    **dict.fromkeys(("end_turn", "stop_sequence", "tool_calls", "tool_use", "function_call"), "stop"),
    **{finish: finish for finish in ("length", "content_filter", "malformed_call", "truncated", "empty")},
    "refusal": "content_filter",
}


class TurnHandler(BaseCallbackHandler):
    """Reports model turns to a run."""

    run_inline = True  # in the order of events, and in their context
    raise_error = True

    def __init__(self, listener: GraphRun) -> None:
        self._listener = listener

    def on_chat_model_start(self, serialized: Any, messages: Any, *, run_id: Any, **kwargs: Any) -> None:
        said = [message for batch in messages for message in batch]
        self._listener.begin_request(
            run_id, said, str((kwargs.get("metadata") or {}).get("langgraph_checkpoint_ns", ""))
        )

    def on_llm_start(self, serialized: Any, prompts: Any, *, run_id: Any, **kwargs: Any) -> None:
        self._listener.begin_request(run_id, (), "")

    def on_llm_end(self, response: Any, *, run_id: Any, **kwargs: Any) -> None:
        first = response.generations[0][0]
        self._listener.record_turn(run_id, to_model_turn(getattr(first, "message", first.text)))

    def on_llm_error(self, error: Any, *, run_id: Any, **kwargs: Any) -> None:
        self._listener.drop_request(run_id)


# In force for every model of the context, also where an agent calls another one with a configuration of its own.
HANDLER: ContextVar[TurnHandler | None] = ContextVar("evalkit_langchain_handler", default=None)
register_configure_hook(HANDLER, inheritable=True)


def to_model_turn(message: Any) -> ModelTurn:
    """Convert an AIMessage, or the text of a model without messages, to a model turn."""
    if isinstance(message, str):
        return ModelTurn(text=message, finish_reason="stop" if message else "empty")
    calls = (
        *(ModelCall(name=it["name"], arguments=it["args"], call_id=it["id"]) for it in message.tool_calls),
        *map(_to_malformed_call, message.invalid_tool_calls),
    )
    metadata = message.response_metadata
    text = str(message.text)
    return ModelTurn(
        text=text,
        calls=calls,
        finish_reason=_get_finish_reason(metadata, calls, text),
        usage=_to_usage(message.usage_metadata),
        model=next((metadata[key] for key in ("model_name", "model") if isinstance(metadata.get(key), str)), None),
    )


def _to_malformed_call(call: Mapping[str, Any]) -> ModelCall:
    reason = call.get("error") or "they are no JSON object"
    return ModelCall(name=call["name"] or "", arguments=call["args"], call_id=call["id"], malformed=reason)


def _get_finish_reason(metadata: Mapping[str, Any], calls: Iterable[ModelCall], text: str) -> str:
    reasons = (metadata.get(key) for key in ("finish_reason", "stop_reason", "done_reason"))
    reason = next((reason for reason in reasons if isinstance(reason, str)), "stop")
    finish = FINISHES.get(reason.lower(), "other")
    if finish != "stop":
        return finish
    return "tool_calls" if calls else "stop" if text else "empty"


def _to_usage(counted: Mapping[str, Any] | None) -> Usage | None:
    if not counted:
        return None
    output_tokens, input_tokens = counted.get("output_tokens", 0), counted.get("input_tokens", 0)
    reasoning = (counted.get("output_token_details") or {}).get("reasoning") or 0
    return Usage(
        input_tokens=input_tokens,
        output_tokens=max(output_tokens - reasoning, 0),
        reasoning_tokens=reasoning,
        cached_tokens=(counted.get("input_token_details") or {}).get("cache_read") or 0,
        total_tokens=counted.get("total_tokens", input_tokens + output_tokens),
    )


class LangChainTaskModel(BaseChatModel):
    """The task's own model as a chat model of LangChain."""

    asked: Any = Field(exclude=True, repr=False)

    @property
    def _llm_type(self) -> str:
        return "evalkit"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools])

    async def _agenerate(self, messages: list[Any], *args: Any, **kwargs: Any) -> ChatResult:
        functions = [tool["function"] for tool in kwargs.get("tools") or ()]
        tool_specs = [(each["name"], each.get("description"), each.get("parameters")) for each in functions]
        system = "\n\n".join(str(message.text) for message in messages if message.type == "system")
        turn, ids = await self.asked.ask(system or None, _to_messages(messages, self.asked), tool_specs)
        return ChatResult(generations=[ChatGeneration(message=_to_ai_message(turn, ids))])

    def _generate(self, messages: list[Any], *args: Any, **kwargs: Any) -> ChatResult:
        result: ChatResult = wait_for(self._agenerate(messages, *args, **kwargs))
        return result


def _to_messages(messages: Sequence[Any], conversation: TaskModelConversation) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = []
    results: list[tuple[str, str, Any]] = []
    for message in messages:
        if message.type == "tool":
            results.append((message.tool_call_id, message.name or "", _parse_result(message)))
            continue
        if results:
            entries.append(conversation.build_result_message(results))
            results = []
        if message.type == "ai":
            entries.append(
                conversation.build_model_message(
                    str(message.text), [(it["id"], it["name"], it["args"]) for it in _get_calls(message)]
                )
            )
        elif message.type != "system":
            entries.append({"role": "user", "text": str(message.text)})
    return [*entries, conversation.build_result_message(results)] if results else entries


def _get_calls(message: Any) -> list[Any]:
    return [*message.tool_calls, *message.invalid_tool_calls]


def _parse_result(message: Any) -> Any:
    """Parse a tool's answer as data, if it is some."""
    text = str(message.text)
    if message.status == "error":
        return {"error": {"type": "error", "message": text}}
    try:
        return json.loads(text) if text.startswith(("{", "[")) else text
    except ValueError:
        return text


def _to_ai_message(turn: ModelTurn, ids: Sequence[str]) -> AIMessage:
    calls = list(zip(ids, turn.calls, strict=True))
    return AIMessage(
        turn.text,
        tool_calls=[
            {"id": known, "name": call.name, "args": call.arguments} for known, call in calls if not _is_broken(call)
        ],
        invalid_tool_calls=[
            {
                "id": known,
                "name": call.name,
                "args": _format_arguments(call),
                "error": call.malformed or "it is no JSON object",
            }
            for known, call in calls
            if _is_broken(call)
        ],
        usage_metadata=_to_usage_metadata(turn.usage),
        response_metadata={"finish_reason": turn.finish_reason, "model_name": turn.model or "evalkit"},
    )


def _is_broken(call: ModelCall) -> bool:
    return call.malformed is not None or not isinstance(call.arguments, dict)


def _format_arguments(call: ModelCall) -> str:
    return call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments)


def _to_usage_metadata(usage: Usage | None) -> Any:
    if usage is None:
        return None
    output_tokens = usage.output_tokens + usage.reasoning_tokens
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": output_tokens,
        "total_tokens": usage.total_tokens or usage.input_tokens + output_tokens,
        "input_token_details": {"cache_read": usage.cached_tokens},
        "output_token_details": {"reasoning": usage.reasoning_tokens},
    }
