"""Where an agent's code runs: the thread of its sync parts, and the context that all its parts share.

Usually any thread and a fresh copy of the caller's context. An agent that was opened stays in one thread and one
context from its set-up to its tear-down, and a caller may lend a thread of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from queue import SimpleQueue
from weakref import WeakSet

from msgspec import Struct

from evalkit.pipeline.threads import run_in_daemon_thread

Work = Callable[[], None]
TEARDOWN_S = 10.0  # how long a tear-down may take

_open: WeakSet[asyncio.Task[None]] = WeakSet()


class AgentThread(Struct, frozen=True):
    """`carry` brings work, which must not raise, to a thread. `context` None: a copy of the caller's for each call."""

    submit: Callable[[Work], None] = run_in_daemon_thread
    context: Context | None = None
    is_async: bool = False  # the context belongs to tasks of the event loop, which may enter it at any time

    def get_thread_context(self) -> Context:
        """For work that is carried to a thread."""
        if self.context is None:
            return copy_context()
        return self.context.copy() if self.is_async else self.context


current_agent_thread: ContextVar[AgentThread] = ContextVar("evalkit_host", default=AgentThread())  # noqa: B039  # frozen


class DedicatedThread:
    """A daemon thread that does one piece of work after the other, until it is released."""

    def __init__(self) -> None:
        self._work: SimpleQueue[Work | None] = SimpleQueue()
        run_in_daemon_thread(self._run)

    def submit(self, work: Work) -> None:
        self._work.put(work)

    def release(self) -> None:
        """Once it has done what it was given."""
        self._work.put(None)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            work()


def register_open_agent(task: asyncio.Task[None]) -> None:
    """`task` is that of an open agent: it ends with the agent's tear-down, and is not to be cancelled before."""
    _open.add(task)


def list_open_agents() -> set[asyncio.Task[None]]:
    """The tasks of agents that are open, on whatever loop."""
    return {task for task in list(_open) if not task.done()}


def get_closing_timeout() -> float:
    """For how long a loop that is to be closed must be waited for."""
    return TEARDOWN_S if list_open_agents() else 0.0


async def wait_for_teardown() -> None:
    """Wait until the agents that are open on this loop are torn down."""
    loop = asyncio.get_running_loop()
    here = {task for task in list_open_agents() if task.get_loop() is loop}
    if here:
        await asyncio.wait(here, timeout=TEARDOWN_S)
