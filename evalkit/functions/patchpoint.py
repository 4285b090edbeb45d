"""One patched function: who is calling it, and what that caller gets."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from evalkit.errors import FunctionError, MockError
from evalkit.functions.active import ACTIVE, CASE, LOCK, PatchedCase
from evalkit.functions.attempt import MockedError
from evalkit.functions.patchable import ASYNC, ASYNC_GENERATOR, GENERATOR, PatchTarget
from evalkit.functions.routing import MALFORMED
from evalkit.functions.swapping import Swap, swap_for
from evalkit.functions.targets import find

# Points whose real function is running in this context: what it calls of itself is real, too.
_REALLY: ContextVar[frozenset[PatchPoint]] = ContextVar("evalkit_really", default=frozenset())


class PatchPoint:
    """A target, its hook and its original. Made once per process; `users` counts the cases that patch it now."""

    def __init__(self, target: PatchTarget) -> None:
        self.target = target
        self.users = 0
        hooks: Mapping[str, Callable[..., Any]] = {
            ASYNC: self._answer_async,
            GENERATOR: self._generate,
            ASYNC_GENERATOR: self._generate_async,
        }
        self._swap: Swap = swap_for(target, hooks.get(target.kind, self._answer))

    @property
    def implementation(self) -> Callable[..., Any] | None:
        """The real function for calls by name; None for a method, which needs its instance."""
        if self.target.takes_self:
            return None
        return self._really_async if self.target.kind == ASYNC else self._really

    def install(self) -> None:
        self._swap.install()

    def remove(self) -> None:
        self._swap.remove()

    def _answer(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        case = responsible_for(self)
        return self._swap.real(*args, **kwargs) if case is None else self._ask(case, args, kwargs)

    def _ask(self, case: PatchedCase, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with _as_real_code_fails():
            return case.dispatcher.call(**self._call(case, args, kwargs, self._really))

    async def _answer_async(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        case = responsible_for(self)
        if case is None:
            return await self._swap.real(*args, **kwargs)
        with _as_real_code_fails():
            return await case.dispatcher.acall(**self._call(case, args, kwargs, self._really_async))

    def _generate(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Any]:
        case = responsible_for(self)
        if case is None:
            return iter(self._swap.real(*args, **kwargs))
        return self._items(case, self._ask(case, args, kwargs))

    async def _generate_async(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> AsyncIterator[Any]:
        case = responsible_for(self)
        if case is None:
            answer = self._swap.real(*args, **kwargs)
        else:
            with _as_real_code_fails():
                answer = await case.dispatcher.acall(**self._call(case, args, kwargs, self._swap.real))
        if hasattr(answer, "__aiter__"):
            async for item in answer:
                yield item
        else:
            for item in self._items(case, answer):
                yield item

    def _items(self, case: PatchedCase | None, answer: Any) -> Iterator[Any]:
        if isinstance(answer, list) or hasattr(answer, "__next__"):
            return iter(answer)
        assert case is not None  # a real generator has given an iterator
        text = f"{self.target.text} is a generator, so its mock must be a list of what it yields"
        raise case.dispatcher.blame(MockError(f"the mock of {case.names[self]} is broken: {text}"))

    def _call(
        self, case: PatchedCase, args: tuple[Any, ...], kwargs: dict[str, Any], real: Callable[..., Any]
    ) -> dict[str, Any]:
        """The call as the dispatcher takes it."""
        call: dict[str, Any] = {"name": case.names[self], "real": functools.partial(real, *args, **kwargs)}
        try:
            call["arguments"] = self.target.named(args, kwargs)
        except TypeError as error:
            return call | {"arguments": kwargs, "malformed": str(error)}
        return call | case.dispatcher.attributed(call["name"], call["arguments"])

    def _really(self, *args: Any, **kwargs: Any) -> Any:
        token = _REALLY.set(_REALLY.get() | {self})
        try:
            return self._swap.real(*args, **kwargs)
        finally:
            _REALLY.reset(token)

    async def _really_async(self, *args: Any, **kwargs: Any) -> Any:
        token = _REALLY.set(_REALLY.get() | {self})
        try:
            return await self._swap.real(*args, **kwargs)
        finally:
            _REALLY.reset(token)


def responsible_for(point: PatchPoint) -> PatchedCase | None:
    """The case that answers a call made here and now, None for the real function; MockError where it can't be told."""
    if point in _REALLY.get():
        return None
    case: PatchedCase | None = CASE.get()
    if case is None:
        return _only_active(point)
    if point not in case.names:
        return None
    if case.is_over:
        how = "from a thread or task of a case that is over"
        # An agent that was left behind calls on: no other case's business.
        raise _refused(point, how) if case.is_abandoned else _blamed(point, how)
    return case


def _only_active(point: PatchPoint) -> PatchedCase | None:
    with LOCK:
        active = list(ACTIVE)
    if not any(point in case.names for case in active):
        return None
    if len(active) == 1:
        return active[0]
    raise _blamed(point, f"outside of any case while {len(active)} cases run, so nobody knows whose call it is")


def _blamed(point: PatchPoint, how: str) -> MockError:
    """The error for a call that is no case's; each case that it may belong to can't be measured."""
    error = _refused(point, how)
    with LOCK:
        for case in ACTIVE:
            if point in case.names:
                case.dispatcher.blame(error)
    return error


def _refused(point: PatchPoint, how: str) -> MockError:
    hint = "hand work to older threads with evalkit.bind(function), or run one case at a time"
    return MockError(f"{point.target.text} was called {how}; {hint}")


@contextmanager
def _as_real_code_fails() -> Iterator[None]:
    """Failures as code that knows nothing of evalkit expects them."""
    try:
        yield
    except MockedError as error:
        if error.exception is None:
            raise
        raise find(error.exception, "builtins:TimeoutError").value(error.message) from None
    except FunctionError as error:
        if error.type != MALFORMED:
            raise
        raise TypeError(error.message) from None
