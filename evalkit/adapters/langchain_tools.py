"""LangChain's tools, answered by the dispatcher while an agent runs, for that run alone.

A graph holds its tools where nothing can be put around them, so the one place that all of them pass is taken:
`BaseTool.run` and `arun`. There, in the context of a run, a copy of the tool goes on in place of the tool. It is like
the tool in everything (its schema, its callbacks, its handling of errors, what it makes of a result), but its
function asks the dispatcher. Elsewhere, and in every process that never runs an adapter, tools are what they were.

The hooks stay once they are in, since an agent that was left behind may call on: its calls are refused.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol

from evalkit.errors import FunctionError, MockError
from evalkit.functions.callables import wait_for

if TYPE_CHECKING:
    from collections.abc import Awaitable


class ToolRun(Protocol):
    """Who answers the tools of a run."""

    is_over: bool

    def blame(self, error: MockError) -> None:
        """A call that may be this run's could not be answered."""

    def meet(self, tool: Any) -> None:
        """A tool is about to be called."""

    async def call(self, name: str, arguments: Any, call_id: str | None, real: Callable[[], Awaitable[Any]]) -> Any:
        """What the function answers. Raises FunctionError where it fails."""

    async def refused(self, name: str, arguments: Any, call_id: str | None, why: str) -> None:
        """The arguments do not fit the tool."""


RUN: ContextVar[ToolRun | None] = ContextVar("evalkit_langchain_run", default=None)

_lock = threading.Lock()
_going: list[ToolRun] = []
_hooked = False


def begin(run: ToolRun) -> None:
    """Answer the tools of `run` from now on, in contexts in which RUN is it."""
    global _hooked
    with _lock:
        _going.append(run)
        if not _hooked:
            _hook()
            _hooked = True


def end(run: ToolRun) -> None:
    """Refuse what `run` still calls."""
    with _lock:
        run.is_over = True
        _going.remove(run)


def _hook() -> None:
    from langchain_core.tools import BaseTool, StructuredTool, Tool

    for name, hook in (("run", _run), ("arun", _arun)):
        setattr(BaseTool, name, hook(getattr(BaseTool, name)))
    for kind in (StructuredTool, Tool):
        kind.ainvoke = _ainvoke(kind.ainvoke, BaseTool.ainvoke)  # type: ignore[method-assign,unused-ignore]


def _run(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def run(self: Any, tool_input: Any, *args: Any, **kwargs: Any) -> Any:
        return original(_standing_in(self, tool_input, kwargs), tool_input, *args, **kwargs)

    return run


def _arun(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    async def arun(self: Any, tool_input: Any, *args: Any, **kwargs: Any) -> Any:
        return await original(_standing_in(self, tool_input, kwargs), tool_input, *args, **kwargs)

    return arun


def _ainvoke(original: Callable[..., Any], base: Callable[..., Any]) -> Callable[..., Any]:
    """Tools whose function is sync would go to a thread: parallel calls would be recorded in any order."""

    @functools.wraps(original)
    async def ainvoke(self: Any, *args: Any, **kwargs: Any) -> Any:
        return await (original if _responsible(self) is None else base)(self, *args, **kwargs)

    return ainvoke


def _standing_in(tool: Any, tool_input: Any, known: Mapping[str, Any]) -> Any:
    """What runs in place of `tool`; the tool itself outside of every run."""
    run = _responsible(tool)
    if run is None:
        return tool
    run.meet(tool)
    return _Substitute(run, tool, tool_input, known.get("tool_call_id")).tool()


def _responsible(tool: Any) -> ToolRun | None:
    """The run that answers a call made here and now; None for the real tool."""
    run = RUN.get()
    if run is not None:
        if run.is_over:
            raise _refused(tool, "by a run that is over")
        return run
    with _lock:
        going = list(_going)
    if len(going) > 1:
        error = _refused(tool, f"outside of any run while {len(going)} run, so nobody knows whose call it is")
        for each in going:
            each.blame(error)
        raise error
    return going[0] if going else None


def _refused(tool: Any, how: str) -> MockError:
    hint = "keep context variables where you start threads (contextvars.copy_context), or run one case at a time"
    return MockError(f"the tool {tool.name} was called {how}; {hint}")


class _Substitute:
    """One call of a tool, on its way to the dispatcher."""

    def __init__(self, run: ToolRun, tool: Any, tool_input: Any, call_id: str | None) -> None:
        self._run = run
        self._tool = tool
        self._call: tuple[str, Any, str | None] = (tool.name, _arguments(tool, tool_input), call_id)
        self._misfit: Exception | None = None

    def tool(self) -> Any:
        """A copy of the tool whose function is `_aanswer`; sync where the tool is called so."""
        copy = self._tool.model_copy()
        sync, coroutine = self._tool._run, self._tool._arun

        @functools.wraps(sync)
        def _run(*args: Any, **kwargs: Any) -> Any:
            return wait_for(self._answer(_in_thread(sync, args, kwargs)))

        @functools.wraps(coroutine)
        async def _arun(*args: Any, **kwargs: Any) -> Any:
            return await self._answer(lambda: coroutine(*args, **kwargs))

        # Not by setattr, which a tool checks as it would its fields.
        vars(copy).update(_run=_run, _arun=_arun, _to_args_and_kwargs=self._parsed)
        return copy

    def _parsed(self, tool_input: Any, tool_call_id: str | None) -> Any:
        """The tool's own reading of its input. What does not fit is raised where the function would run."""
        try:
            return self._tool._to_args_and_kwargs(tool_input, tool_call_id)
        except Exception as error:
            self._misfit = error
            return (), {}

    async def _answer(self, real: Callable[[], Awaitable[Any]]) -> Any:
        if self._misfit is not None:
            await self._run.refused(*self._call, str(self._misfit))
            raise self._misfit
        try:
            value = await self._run.call(*self._call, real)
        except FunctionError as error:
            from langchain_core.tools import ToolException

            raise ToolException(error.message) from error
        pair = self._tool.response_format == "content_and_artifact" and not isinstance(value, tuple)
        return (value, None) if pair else value


def _in_thread(function: Callable[..., Any], args: Any, kwargs: Any) -> Callable[[], Awaitable[Any]]:
    import asyncio

    return lambda: asyncio.to_thread(function, *args, **kwargs)


def _arguments(tool: Any, tool_input: Any) -> Any:
    """What the model wrote: without what the framework injects."""
    if isinstance(tool_input, dict):
        return tool._filter_injected_args(tool_input)
    names = list(tool.args)
    return {names[0] if names else "input": tool_input}
