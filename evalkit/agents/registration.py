"""`@evalkit.agent("warranty")`: naming an agent, so that cases can say ``agent: warranty``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from evalkit.errors import UsageError
from evalkit.model.registry import AGENTS

F = TypeVar("F", bound=Callable[..., Any])


def agent(name: str, *, threads: int = 1) -> Callable[[F], F]:
    """Register the decorated callable, ``agent(task) -> str | Reply``, sync or async, under `name`.

    `threads` is for sync agents: how many of them may run at the same time. The same function registered again
    replaces itself (a reloaded conftest); another one of that name is a UsageError that names both places.
    """
    if not isinstance(name, str) or not name.strip():
        raise UsageError(f'evalkit.agent needs a name, as in @evalkit.agent("warranty"), got {_describe_name(name)}')
    if isinstance(threads, bool) or not isinstance(threads, int) or threads < 1:
        raise UsageError(f"evalkit.agent(threads=...) is a number from 1, got {threads!r}")

    def register(item: F) -> F:
        if not callable(item):
            raise UsageError(f"agent '{name}' is no function: {item!r} can't be called")
        AGENTS.add(name, item, threads=threads)
        return item

    return register


def _describe_name(name: object) -> str:
    if callable(name):
        return f"the function {getattr(name, '__name__', name)}; write the parentheses"
    return repr(name)
