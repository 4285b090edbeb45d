"""The hand-offs and delegations of a run, as its agents' code and adapters tell of them.

A framework's tool that runs another agent is not known for one until that agent asks its model: then it is a delegation
by the agent whose tool it is.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import cast

from msgspec.structs import replace

from evalkit.checks.expectation import Expectation
from evalkit.features.handoffs.records import DELEGATION, HANDOFF, NAME, Handoff, put_handoffs
from evalkit.functions.acting import ActingAgent, act, get_acting
from evalkit.functions.call_log import CallLog, PendingCall
from evalkit.functions.targets import is_async
from evalkit.hooks import AgentChange, RunPart
from evalkit.locks import create_lock
from evalkit.records.transcript import Transcript


class HandoffLog(RunPart):
    """The hand-offs and delegations of one run. Thread-safe."""

    feature = NAME

    def __init__(self, call_log: CallLog) -> None:
        self._call_log = call_log
        self._entries: list[tuple[Handoff, PendingCall | None]] = []  # each with the call that it follows
        self._lock = create_lock()

    def change_agent(self, change: AgentChange) -> None:
        acting = get_acting()
        if acting is not None:
            acting.reached.add(change.target)
        kind = DELEGATION if change.returns else HANDOFF
        with self._lock:
            user_turn = self._call_log.user_turn
            handoff = Handoff(target=change.target, source=change.source, kind=kind, user_turn=user_turn)
            self._entries.append((handoff, self._call_log.find_last(change.function)))

    def finish(self, transcript: Transcript, expectations: Sequence[Expectation | None]) -> Transcript:
        """Record them in the order of the run. Calls that were recorded late may have moved the others."""
        with self._lock:
            entries = [replace(handoff, call=None if call is None else call.index) for handoff, call in self._entries]
        return replace(transcript, features=put_handoffs(transcript, entries))

    def wrap_tool(self, real: Callable[[], object], agent: str | None, function: str) -> Callable[[], object]:
        """Wrap `real`, the code of a tool of `agent` that is called `function`: other agents in it are delegations."""
        acting = ActingAgent(agent, function, set())

        async def wait(awaitable: Awaitable[object]) -> object:
            with act(acting):
                return await awaitable

        def run_tool() -> object:
            with act(acting):
                result = real()
            return wait(result) if inspect.isawaitable(result) else result

        async def arun_tool() -> object:
            return await wait(cast("Awaitable[object]", real()))

        return arun_tool if is_async(real) else run_tool

    def note_turn(self, agent: str | None) -> None:
        """Record a delegation if `agent`, whose model replied, is one that the acting agent's function has asked."""
        acting = get_acting()
        if acting is not None and agent is not None and agent != acting.name and agent not in acting.reached:
            self.change_agent(AgentChange(source=acting.name, target=agent, returns=True, function=acting.function))
