"""One run of a graph: who answers its tools, and who is told of its turns. Imports the framework."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from langchain_core.utils.function_calling import convert_to_openai_tool

from evalkit.adapters.langchain_tools import RUNS, hook
from evalkit.adapters.langchain_turns import HANDLER, Handler
from evalkit.adapters.recording import Dialogue, Recorder
from evalkit.functions.callables import wait_for
from evalkit.model.transcript import ModelTurn


class TooManyTurnsError(Exception):
    """An agent asks its model more often than `settings.max_iterations`."""


class GraphRun:
    """Turns and calls of the graphs that run in one context. `last` is the latest turn; each agent may ask its model
    `limit` times.
    """

    def __init__(self, recorder: Recorder, as_is: Collection[str], limit: int | None = None) -> None:
        self.recorder = recorder
        self.last = ModelTurn()
        self._limit = limit
        self._as_is = frozenset(as_is)
        self._asked: dict[Any, Dialogue] = {}
        self._asked_at: Counter[str] = Counter()
        # By id of the call, the latest first. A person may approve it in another run of the same case.
        self._made: dict[str, list[Dialogue]] = recorder.histories.setdefault(("langchain", "calls"), {})
        self._unanswered: set[tuple[str, str]] = set()  # id and name
        self._names: set[str] = set()
        self._lock = threading.Lock()

    @contextmanager
    def entered(self) -> Iterator[None]:
        """While inside, what graphs of this context do is this run's."""
        hook()
        token = HANDLER.set(Handler(self))
        try:
            with RUNS.entered(self):
                yield
        finally:
            HANDLER.reset(token)

    # -- the tools

    def meet(self, tool: Any) -> None:
        with self._lock:
            if tool.name in self._names:
                return
            self._names.add(tool.name)
        parameters = convert_to_openai_tool(tool)["function"].get("parameters")
        self.recorder.declare([(tool.name, tool.description, parameters)])

    async def call(self, name: str, arguments: Any, call_id: str | None, real: Callable[[], Awaitable[Any]]) -> Any:
        dialogue = self._dialogue_of(name, arguments, call_id)
        as_is = name in self._as_is
        return await dialogue.call(name, arguments, call_id, real=real, as_is=as_is, unconverted=True)

    async def refused(self, name: str, arguments: Any, call_id: str | None, why: str) -> None:
        dialogue = self._dialogue_of(name, arguments, call_id)
        await dialogue.refused(name, arguments, call_id, why, as_is=name in self._as_is)

    def _dialogue_of(self, name: str, arguments: Any, call_id: str | None) -> Dialogue:
        """The one in which the call was asked for: agents side by side may give their calls the same ids."""
        self._unanswered.discard((call_id or "", name))
        made = self._made.get(call_id or "", [])
        best = max(made, key=lambda dialogue: dialogue.asked_for(name, arguments, call_id), default=None)
        named = best is not None and best.asked_for(name, arguments, call_id) > 1
        return best if best is not None and named else Dialogue(self.recorder)

    # -- the turns

    def asks(self, request: Any, messages: Sequence[Any], place: str) -> None:
        self.note_unknown(messages)
        agent = place.rpartition(":")[0]  # without the id of this step
        self._asked_at[agent] += 1
        if place and self._limit is not None and self._asked_at[agent] > self._limit:
            raise TooManyTurnsError(f"the model was asked {self._asked_at[agent]} times")
        self._asked[request] = dialogue = Dialogue(self.recorder)
        dialogue.asks()

    def replied(self, request: Any, turn: ModelTurn) -> None:
        dialogue = self._asked.pop(request)
        dialogue.replied(turn)
        self.last = turn
        for call in turn.calls:
            if call.malformed is not None:
                wait_for(dialogue.refused(call.name, call.arguments, call.call_id, call.malformed))
            elif call.call_id is not None:
                self._made.setdefault(call.call_id, []).insert(0, dialogue)
                self._unanswered.add((call.call_id, call.name))

    def failed(self, request: Any) -> None:
        self._asked.pop(request, None)

    def note_unknown(self, messages: Iterable[Any]) -> None:
        """Record calls of tools that do not exist: the graph has answered them with an error, and asked nobody."""
        for message in messages:
            if getattr(message, "type", None) != "tool" or (message.tool_call_id, message.name) not in self._unanswered:
                continue
            dialogue = self._dialogue_of(message.name, None, message.tool_call_id)
            if message.status == "error" and message.name not in self._names:
                wait_for(dialogue.unknown(message.tool_call_id, self._names))


def tools_of(graph: Any) -> Iterator[Any]:
    """The tools that stand in a graph's tool nodes, subgraphs included. Others are met when they are called."""
    for node in getattr(graph, "nodes", {}).values():
        bound = getattr(node, "bound", node)
        yield from getattr(bound, "tools_by_name", {}).values()
        if isinstance(getattr(bound, "nodes", None), Mapping):
            yield from tools_of(bound)
