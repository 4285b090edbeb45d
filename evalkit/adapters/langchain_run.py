"""One run of a graph: who answers its tools, and who is told of its turns. Imports the framework."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from langchain_core.utils.function_calling import convert_to_openai_tool

from evalkit.adapters.langchain_tools import RUNS, install_hooks
from evalkit.adapters.langchain_turns import HANDLER, TurnHandler
from evalkit.adapters.recording import AgentRunRecorder, TaskRecorder
from evalkit.functions.callables import wait_for
from evalkit.model.transcript import ModelTurn


class TooManyTurnsError(Exception):
    """An agent asks its model more often than `settings.max_iterations`."""


class GraphRun:
    """Turns and calls of the graphs that run in one context. `last` is the latest turn; each agent may ask its model
    `limit` times.
    """

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
        """While inside, what graphs of this context do is this run's."""
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
        dialogue = self._find_run_recorder(name, arguments, call_id)
        as_is = name in self._as_is
        return await dialogue.call(name, arguments, call_id, real=real, as_is=as_is, unconverted=True)

    async def refuse_call(self, name: str, arguments: Any, call_id: str | None, reason: str) -> None:
        dialogue = self._find_run_recorder(name, arguments, call_id)
        await dialogue.refuse_call(name, arguments, call_id, reason, as_is=name in self._as_is)

    def _find_run_recorder(self, name: str, arguments: Any, call_id: str | None) -> AgentRunRecorder:
        """The one in which the call was asked for: agents side by side may give their calls the same ids."""
        self._unanswered.discard((call_id or "", name))
        candidates = self._by_call_id.get(call_id or "", [])
        best = max(candidates, key=lambda dialogue: dialogue.score_call(name, arguments, call_id), default=None)
        is_match = best is not None and best.score_call(name, arguments, call_id) > 1
        return best if best is not None and is_match else AgentRunRecorder(self.recorder)

    # -- the turns

    def begin_request(self, request: Any, messages: Sequence[Any], place: str) -> None:
        self.record_unknown_calls(messages)
        agent = place.rpartition(":")[0]  # without the id of this step
        self._request_counts[agent] += 1
        if place and self._limit is not None and self._request_counts[agent] > self._limit:
            raise TooManyTurnsError(f"the model was asked {self._request_counts[agent]} times")
        self._open_requests[request] = dialogue = AgentRunRecorder(self.recorder)
        dialogue.begin_request()

    def record_turn(self, request: Any, turn: ModelTurn) -> None:
        dialogue = self._open_requests.pop(request)
        dialogue.record_reply(turn)
        self.last_turn = turn
        for call in turn.calls:
            if call.malformed is not None:
                wait_for(dialogue.refuse_call(call.name, call.arguments, call.call_id, call.malformed))
            elif call.call_id is not None:
                self._by_call_id.setdefault(call.call_id, []).insert(0, dialogue)
                self._unanswered.add((call.call_id, call.name))

    def drop_request(self, request: Any) -> None:
        self._open_requests.pop(request, None)

    def record_unknown_calls(self, messages: Iterable[Any]) -> None:
        """Record calls of tools that do not exist: the graph has answered them with an error, and asked nobody."""
        for message in messages:
            if getattr(message, "type", None) != "tool" or (message.tool_call_id, message.name) not in self._unanswered:
                continue
            dialogue = self._find_run_recorder(message.name, None, message.tool_call_id)
            if message.status == "error" and message.name not in self._names:
                wait_for(dialogue.record_unknown_call(message.tool_call_id, self._names))


def find_tools(graph: Any) -> Iterator[Any]:
    """The tools that stand in a graph's tool nodes, subgraphs included. Others are met when they are called."""
    for node in getattr(graph, "nodes", {}).values():
        runnable = getattr(node, "bound", node)
        yield from getattr(runnable, "tools_by_name", {}).values()
        if isinstance(getattr(runnable, "nodes", None), Mapping):
            yield from find_tools(runnable)
