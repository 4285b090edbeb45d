"""One patched function: who is calling it, and what that caller gets."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from evalkit.errors import FunctionError, MockError
from evalkit.functions.active import ACTIVE_CASES, CURRENT_CASE, PATCH_LOCK, PatchedCase
from evalkit.functions.attempt import MockedError
from evalkit.functions.patchable import ASYNC, ASYNC_GENERATOR, GENERATOR, PatchTarget
from evalkit.functions.routing import MALFORMED
from evalkit.functions.swapping import Swap, swap_for
from evalkit.functions.targets import find_object

# Points whose real function is running in this context: what it calls of itself is real, too.
_REAL_POINTS: ContextVar[frozenset[PatchPoint]] = ContextVar("evalkit_really", default=frozenset())


class PatchPoint:
    """A target, its hook and its original. Made once per process; `users` counts the cases that patch it now."""

    def __init__(self, target: PatchTarget) -> None:
        self.target = target
        self.users = 0
        hooks: Mapping[str, Callable[..., Any]] = {
            ASYNC: self._handle_async_call,
            GENERATOR: self._generate,
            ASYNC_GENERATOR: self._generate_async,
        }
        self._swap: Swap = swap_for(target, hooks.get(target.kind, self._handle_call))

    @property
    def implementation(self) -> Callable[..., Any] | None:
        """The real function for calls by name; None for a method, which needs its instance."""
        if self.target.takes_self:
            return None
        return self._run_real_async if self.target.kind == ASYNC else self._run_real

    def install(self) -> None:
        self._swap.install()

    def remove(self) -> None:
        self._swap.remove()

    def _handle_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        case = find_responsible_case(self)
        return self._swap.real(*args, **kwargs) if case is None else self._call_mock(case, args, kwargs)

    def _call_mock(self, case: PatchedCase, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with _raise_real_errors():
            return case.dispatcher.call(**self._build_call(case, args, kwargs, self._run_real))

    async def _handle_async_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        case = find_responsible_case(self)
        if case is None:
            return await self._swap.real(*args, **kwargs)
        with _raise_real_errors():
            return await case.dispatcher.acall(**self._build_call(case, args, kwargs, self._run_real_async))

    def _generate(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Any]:
        case = find_responsible_case(self)
        if case is None:
            return iter(self._swap.real(*args, **kwargs))
        return self._iter_items(case, self._call_mock(case, args, kwargs))

    async def _generate_async(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> AsyncIterator[Any]:
        case = find_responsible_case(self)
        if case is None:
            answer = self._swap.real(*args, **kwargs)
        else:
            with _raise_real_errors():
                answer = await case.dispatcher.acall(**self._build_call(case, args, kwargs, self._swap.real))
        if hasattr(answer, "__aiter__"):
            async for item in answer:
                yield item
        else:
            for item in self._iter_items(case, answer):
                yield item

    def _iter_items(self, case: PatchedCase | None, answer: Any) -> Iterator[Any]:
        if isinstance(answer, list) or hasattr(answer, "__next__"):
            return iter(answer)
        assert case is not None  # a real generator has given an iterator
        text = f"{self.target.text} is a generator, so its mock must be a list of what it yields"
        raise case.dispatcher.record_fault(MockError(f"the mock of {case.names[self]} is broken: {text}"))

    def _build_call(
        self, case: PatchedCase, args: tuple[Any, ...], kwargs: dict[str, Any], real: Callable[..., Any]
    ) -> dict[str, Any]:
        """The call as the dispatcher takes it."""
        call: dict[str, Any] = {"name": case.names[self], "real": functools.partial(real, *args, **kwargs)}
        try:
            call["arguments"] = self.target.name_arguments(args, kwargs)
        except TypeError as error:
            return call | {"arguments": kwargs, "malformed": str(error)}
        return call | case.dispatcher.get_attribution(call["name"], call["arguments"])

    def _run_real(self, *args: Any, **kwargs: Any) -> Any:
        token = _REAL_POINTS.set(_REAL_POINTS.get() | {self})
        try:
            return self._swap.real(*args, **kwargs)
        finally:
            _REAL_POINTS.reset(token)

    async def _run_real_async(self, *args: Any, **kwargs: Any) -> Any:
        token = _REAL_POINTS.set(_REAL_POINTS.get() | {self})
        try:
            return await self._swap.real(*args, **kwargs)
        finally:
            _REAL_POINTS.reset(token)


def find_responsible_case(point: PatchPoint) -> PatchedCase | None:
    """The case that answers a call made here and now, None for the real function; MockError where it can't be told."""
    if point in _REAL_POINTS.get():
        return None
    case: PatchedCase | None = CURRENT_CASE.get()
    if case is None:
        return _find_only_case(point)
    if point not in case.names:
        return None
    if case.is_over:
        how = "from a thread or task of a case that is over"
        # An agent that was left behind calls on: no other case's business.
        raise _build_refusal(point, how) if case.is_abandoned else _record_fault(point, how)
    return case


def _find_only_case(point: PatchPoint) -> PatchedCase | None:
    with PATCH_LOCK:
        active = list(ACTIVE_CASES)
    if not any(point in case.names for case in active):
        return None
    if len(active) == 1:
        return active[0]
    raise _record_fault(point, f"outside of any case while {len(active)} cases run, so nobody knows whose call it is")


def _record_fault(point: PatchPoint, how: str) -> MockError:
    """The error for a call that is no case's; each case that it may belong to can't be measured."""
    error = _build_refusal(point, how)
    with PATCH_LOCK:
        for case in ACTIVE_CASES:
            if point in case.names:
                case.dispatcher.record_fault(error)
    return error


def _build_refusal(point: PatchPoint, how: str) -> MockError:
    hint = "hand work to older threads with evalkit.bind(function), or run one case at a time"
    return MockError(f"{point.target.text} was called {how}; {hint}")


@contextmanager
def _raise_real_errors() -> Iterator[None]:
    """Failures as code that knows nothing of evalkit expects them."""
    try:
        yield
    except MockedError as error:
        if error.exception is None:
            raise
        raise find_object(error.exception, "builtins:TimeoutError").value(error.message) from None
    except FunctionError as error:
        if error.type != MALFORMED:
            raise
        raise TypeError(error.message) from None
