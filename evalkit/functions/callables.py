"""`$call`: a Python callable answers, given the arguments and what of the run it names."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from evalkit.errors import MockError
from evalkit.functions.targets import TargetError, find_object

_RUN_NAMES = ("state", "input", "task")
_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_CALL_EXAMPLE = "mocks.warranty:create_ticket"


class ArgumentsRefusedError(Exception):
    """The callable does not take these arguments."""


def load_callable(target: str) -> Callable[..., Any]:
    """What `$call` names. It was there when the case was loaded; a worker process may see another world."""
    try:
        function = find_object(target, _CALL_EXAMPLE).value
    except TargetError as error:
        raise MockError(f"$call {target}: {error}") from error
    if not callable(function):
        raise MockError(f"$call {target}: it is not callable")
    return function  # type: ignore[no-any-return]


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling `function` only makes a coroutine, so that its first step is still to come."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


def bind_arguments(
    function: Callable[..., Any], arguments: Mapping[str, Any], run: Mapping[str, Any]
) -> Callable[[], Any]:
    """`function` with its arguments filled in, ready to be called. ArgumentsRefusedError where they don't fit.

    Parameters named `state`, `input` or `task` get the run's, unless an argument has that name; positional-only ones
    get the run's always.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some C functions have none
        return lambda: function(**arguments)
    first: list[Any] = []
    named = dict(arguments)
    for name, parameter in signature.parameters.items():
        if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
            if name in _RUN_NAMES:
                first.append(run[name])
            elif name in named:
                first.append(named.pop(name))
        elif name in _RUN_NAMES and name not in named and parameter.kind in _BY_NAME:
            named[name] = run[name]
    try:
        signature.bind(*first, **named)
    except TypeError as error:
        raise ArgumentsRefusedError(str(error)) from None
    return lambda: function(*first, **named)


def wait_for(awaitable: Awaitable[Any]) -> Any:
    """The result of `awaitable` for code that is not async: in a loop of its own, beside one that may be running."""

    async def run_awaitable() -> Any:
        return await awaitable

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(run_awaitable())
    return _run_in_thread(lambda: asyncio.run(run_awaitable()))


def _run_in_thread(work: Callable[[], Any]) -> Any:
    context = contextvars.copy_context()
    outcome: list[Any] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            outcome.append(context.run(work))
        except BaseException as error:  # handed on below, in the thread that waits
            failure.append(error)

    thread = threading.Thread(target=run, name="evalkit-async-mock", daemon=True)
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return outcome[0]
