"""The contract of an agent: how it is called or opened, and the reply that it returns."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import TYPE_CHECKING, Never

from msgspec import Struct
from msgspec.structs import force_setattr

from evalkit.errors import UsageError, did_you_mean
from evalkit.jsonvalue import JsonObject
from evalkit.records.transcript import USAGE_KEYS, Usage

if TYPE_CHECKING:
    from evalkit.functions.targets import AgentObject, AnyFunction

COMPLETED = "completed"
_NEVER_YIELDED = "it ended without yielding the agent"
_YIELDED_TWICE = "it yielded a second time; it yields the agent once"


class ReplyText(Struct, frozen=True):
    """The part of a reply that may be given by position."""

    text: str = ""


class Reply(ReplyText, frozen=True, kw_only=True):
    """An agent's answer. A bare string means `Reply(text)`.

    `stop_reason` says how it ended: ``completed``, or a short stable word such as ``email_not_sent``; a case passes
    with another one only if it asks for it. `usage` is for agents that bring their own model client; turns taken
    with `task.turn` are counted without it; a mapping such as ``{"input_tokens": 120, "output_tokens": 18}`` will do.
    `data` is kept in the transcript's metadata.
    """

    stop_reason: str = COMPLETED
    instruction_used: str | None = None
    usage: Usage | Mapping[str, int] | None = None
    data: JsonObject | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.text, str):
            raise UsageError(f"Reply(text=...) is a string, got {type(self.text).__name__}")
        if not isinstance(self.stop_reason, str) or not self.stop_reason:
            raise UsageError(f"Reply(stop_reason=...) is a word such as 'completed', got {self.stop_reason!r}")
        for name, text in (("text", self.text), ("stop_reason", self.stop_reason)):
            if type(text) is not str:  # LangChain's message.text is a class of its own, which no report can write
                force_setattr(self, name, str.__str__(text))
        if self.usage is not None and not isinstance(self.usage, Usage):
            if not isinstance(self.usage, Mapping):
                raise UsageError(
                    f"Reply(usage=...) is a mapping of {', '.join(USAGE_KEYS)}, got {type(self.usage).__name__}"
                )
            for key, count in self.usage.items():
                if key not in USAGE_KEYS:
                    hint = did_you_mean(key, USAGE_KEYS) or f"; it has {', '.join(USAGE_KEYS)}"
                    raise UsageError(f"Reply(usage=...) has the unknown key {key!r}{hint}")
                if isinstance(count, bool) or not isinstance(count, int) or count < 0:
                    raise UsageError(f"Reply(usage=...): {key!r} is a number of tokens, got {count!r}")
            force_setattr(self, "usage", Usage(**self.usage))


class Opening(Struct, frozen=True):
    """An agent with a set-up and a tear-down: a generator function that yields the agent once, or a context manager.

    It is opened for one run of one case. The tear-down learns nothing of how the run went: it continues after the
    ``yield`` whatever happened, as a pytest fixture does. `is_async`: both are awaited, else they block a thread.
    """

    make: AnyFunction
    is_async: bool

    def create_manager(
        self, task: object
    ) -> AbstractContextManager[AgentObject] | AbstractAsyncContextManager[AgentObject]:
        """Create a context manager over the agent, sync or async, not entered yet. Calls the agent's own code."""
        try:
            inspect.signature(self.make).bind(None)
            arguments = [task]
        except (TypeError, ValueError):
            arguments = []
        opened: AgentObject = self.make(*arguments)
        if inspect.isasyncgen(opened):
            return _AsyncGeneratorManager(opened)
        return _GeneratorManager(opened) if inspect.isgenerator(opened) else opened


class AgentUnderTest(Struct, frozen=True):
    """A resolved agent: ``run(task) -> str | Reply``, awaitable if `is_async`; `threads` sync runs may overlap.

    `timeout_s` limits one answer, within the case's deadline. `grace_s` is how long an async agent that is cut off may
    take to clean up. An agent with an `opening` is opened, and `run` is not called itself.
    """

    name: str
    run: AnyFunction
    is_async: bool = False
    threads: int = 1
    timeout_s: float | None = None
    grace_s: float = 0.0
    opening: Opening | None = None
    is_recorded: bool = False  # it tells what another system's agent did


def build_agent(name: str, run: AnyFunction, *, threads: int = 1) -> AgentUnderTest:
    """Build the agent that `run` is, with its set-up and tear-down if it has them."""
    opening = find_opening(run)
    if opening is None:
        return build_called_agent(name, run, threads=threads)
    return AgentUnderTest(name, run, opening.is_async, threads, opening=opening)


def build_called_agent(name: str, run: AnyFunction, *, threads: int = 1) -> AgentUnderTest:
    """Build an agent that is called as it is."""
    is_async = inspect.iscoroutinefunction(run) or (
        not inspect.isroutine(run) and not inspect.isclass(run) and inspect.iscoroutinefunction(type(run).__call__)
    )
    return AgentUnderTest(name, run, is_async, threads)


def find_opening(item: AgentObject) -> Opening | None:
    """Find how an agent with a set-up and a tear-down is opened; None for one that is called as it is."""
    if inspect.isclass(item):
        is_async = hasattr(item, "__aenter__")
        return Opening(item, is_async) if is_async or hasattr(item, "__enter__") else None
    function = type(item).__call__
    if inspect.isroutine(item):
        # Unwrap contextlib.contextmanager. Any other decorator makes of a generator what it likes.
        is_contextlib = getattr(item, "__globals__", {}).get("__name__") == "contextlib"
        function = inspect.unwrap(item) if is_contextlib else item
    if inspect.isasyncgenfunction(item) or inspect.isasyncgenfunction(function):
        return Opening(item, is_async=True)
    if inspect.isgeneratorfunction(item) or inspect.isgeneratorfunction(function):
        return Opening(item, is_async=False)
    return None


class _GeneratorManager:
    """A generator as a context manager: up to its ``yield``, and on from there."""

    def __init__(self, generator: Generator[AgentObject, Never, object]) -> None:
        self._generator = generator

    def __enter__(self) -> AgentObject:
        for agent in self._generator:
            return agent
        raise UsageError(_NEVER_YIELDED)

    def __exit__(self, *_: object) -> None:
        for _second in self._generator:
            self._generator.close()
            raise UsageError(_YIELDED_TWICE)


class _AsyncGeneratorManager:
    """An async generator as an async context manager."""

    def __init__(self, generator: AsyncGenerator[AgentObject, Never]) -> None:
        self._generator = generator

    async def __aenter__(self) -> AgentObject:
        async for agent in self._generator:
            return agent
        raise UsageError(_NEVER_YIELDED)

    async def __aexit__(self, *_: object) -> None:
        async for _second in self._generator:
            await self._generator.aclose()
            raise UsageError(_YIELDED_TWICE)
