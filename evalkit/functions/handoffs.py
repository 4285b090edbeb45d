"""Runs of several agents: which agent acts in a context, and how the run passes from one agent to another.

An agent's own code says who acts (`Task.act_as`), and adapters say it of a framework's agents. A framework's tool that
runs another agent is not known for one until that agent asks its model: then it is a delegation by the agent whose tool
it is.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import cast

from msgspec import Struct

from evalkit.errors import UsageError
from evalkit.functions.call_log import CallLog, PendingCall
from evalkit.functions.targets import is_async
from evalkit.locks import create_lock
from evalkit.records.transcript import DELEGATION, HANDOFF, Handoff


class ActingAgent(Struct, eq=False):
    """The agent that acts in a context. `function`: it acts by this function of its own, which may ask other agents.

    `reached` are the agents to which the run has passed within the context.
    """

    name: str | None
    function: str | None
    reached: set[str]


_ACTING: ContextVar[ActingAgent | None] = ContextVar("evalkit_acting_agent", default=None)


def get_acting_agent() -> str | None:
    """Return the name of the agent that acts in this context; None where nobody has said one."""
    acting = _ACTING.get()
    return None if acting is None else acting.name


class HandoffLog:
    """The hand-offs and delegations of one run. Thread-safe."""

    def __init__(self, call_log: CallLog) -> None:
        self._call_log = call_log
        self._entries: list[tuple[Handoff, PendingCall | None]] = []  # each with the call that it follows
        self._lock = create_lock()

    def list_handoffs(self) -> tuple[Handoff, ...]:
        """List them in the order of the run. Calls that are recorded late may have moved the others."""
        with self._lock:
            return tuple(
                Handoff(
                    target=handoff.target,
                    source=handoff.source,
                    kind=handoff.kind,
                    call=None if call is None else call.index,
                    user_turn=handoff.user_turn,
                )
                for handoff, call in self._entries
            )

    @contextmanager
    def act_as(self, name: str) -> Iterator[None]:
        """Make `name` the agent of the turns and calls inside. Inside another agent's context it is a delegation."""
        if not isinstance(name, str) or not name.strip():
            raise UsageError(f"an agent is called by its name, a text such as 'billing'; got {name!r}")
        outer = _ACTING.get()
        if outer is not None and outer.name != name:
            self.record(outer.name, name, DELEGATION)
        with _act(ActingAgent(name, None, {name})):
            yield

    def wrap_tool(self, real: Callable[[], object], agent: str | None, function: str) -> Callable[[], object]:
        """Wrap `real`, the code of a tool of `agent` that is called `function`: other agents in it are delegations."""
        acting = ActingAgent(agent, function, set())

        async def wait(awaitable: Awaitable[object]) -> object:
            with _act(acting):
                return await awaitable

        def run_tool() -> object:
            with _act(acting):
                result = real()
            return wait(result) if inspect.isawaitable(result) else result

        async def arun_tool() -> object:
            return await wait(cast("Awaitable[object]", real()))

        return arun_tool if is_async(real) else run_tool

    def hand_over(self, target: str) -> None:
        """Pass the run from the agent that acts in this context to `target`, which acts in it from now on."""
        acting = _ACTING.get()
        if acting is None or acting.name is None:
            raise UsageError(
                f"task.hand_over({target!r}) does not know from whom: write it inside 'with task.act_as(\"NAME\"):'"
            )
        if not isinstance(target, str) or not target.strip():
            raise UsageError(
                f"task.hand_over(...) takes the name of an agent, a text such as 'billing'; got {target!r}"
            )
        self.record(acting.name, target, HANDOFF)
        acting.name = target

    def note_turn(self, agent: str | None) -> None:
        """Record a delegation if `agent`, whose model replied, is one that the acting agent's function has asked."""
        acting = _ACTING.get()
        if acting is not None and agent is not None and agent != acting.name and agent not in acting.reached:
            self.record(acting.name, agent, DELEGATION, acting.function)

    def record(self, source: str | None, target: str, kind: str, function: str | None = None) -> None:
        """Record that the run passes from `source` to `target`, by a call of `function` if there is one."""
        acting = _ACTING.get()
        if acting is not None:
            acting.reached.add(target)
        with self._lock:
            handoff = Handoff(target=target, source=source, kind=kind, user_turn=self._call_log.user_turn)
            self._entries.append((handoff, self._call_log.find_last(function)))


@contextmanager
def _act(acting: ActingAgent) -> Iterator[None]:
    token = _ACTING.set(acting)
    try:
        yield
    finally:
        _ACTING.reset(token)
