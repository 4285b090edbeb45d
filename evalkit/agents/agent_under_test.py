"""Agents with a set-up and a tear-down: generator functions that yield the agent once, and context managers.

What is set up is for one run of one case. Nothing of how the run went is told to the tear-down: it goes on after the
``yield`` whatever happened, as a pytest fixture does.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Callable, Generator
from typing import TYPE_CHECKING, Any, Never

from msgspec import Struct

from evalkit.errors import UsageError

if TYPE_CHECKING:
    from evalkit.agents.task import Task


_NEVER_YIELDED = "it ended without yielding the agent"
_YIELDED_TWICE = "it yielded a second time; it yields the agent once"


class Opening(Struct, frozen=True):
    """How an agent is opened for a run. `is_async`: its set-up and tear-down are awaited, else they block a thread."""

    make: Callable[..., Any]
    is_async: bool

    def create_manager(self, task: Task) -> Any:
        """A context manager over the agent, sync or async, not entered yet. Calls the agent's own code."""
        opened: Any = self.make(task) if _can_take_task(self.make) else self.make()
        if inspect.isasyncgen(opened):
            return _AsyncGeneratorManager(opened)
        return _GeneratorManager(opened) if inspect.isgenerator(opened) else opened


def _can_take_task(make: Callable[..., Any]) -> bool:
    try:
        inspect.signature(make).bind(None)
    except (TypeError, ValueError):
        return False
    return True


class _GeneratorManager:
    """A generator: up to its ``yield``, and on from there."""

    def __init__(self, generator: Generator[Any, Never, Any]) -> None:
        self._generator = generator

    def __enter__(self) -> Any:
        for agent in self._generator:
            return agent
        raise UsageError(_NEVER_YIELDED)

    def __exit__(self, *_: object) -> None:
        for _second in self._generator:
            self._generator.close()
            raise UsageError(_YIELDED_TWICE)


class _AsyncGeneratorManager:
    """The same of an async generator."""

    def __init__(self, generator: AsyncGenerator[Any, Never]) -> None:
        self._generator = generator

    async def __aenter__(self) -> Any:
        async for agent in self._generator:
            return agent
        raise UsageError(_NEVER_YIELDED)

    async def __aexit__(self, *_: object) -> None:
        async for _second in self._generator:
            await self._generator.aclose()
            raise UsageError(_YIELDED_TWICE)
