"""From the leaf that was chosen to the result: rendered, called, converted, checked.

`begin` does all that must happen in reply order (templates, state steps of plain callables) and never waits; an
awaitable is left in `attempt.pending`. `finish` turns what came of it into the record's result and the caller's value.
Neither raises: errors are put on the attempt.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from evalkit.errors import FunctionError, MockError
from evalkit.functions.attempt import Attempt, MockedError, error_result
from evalkit.functions.jsondata import NotJsonError, as_json, copied, recorded
from evalkit.functions.mockchecks import broken_returns, return_problems
from evalkit.functions.mocks import Call, Failure, Leaf, Real, Static
from evalkit.functions.routing import Routes
from evalkit.functions.statics import rendered
from evalkit.model.settings import Settings
from evalkit.model.template import TemplateError

if TYPE_CHECKING:
    from evalkit.functions.resolving import Roots


def _nobody() -> None:
    """No task has been told of yet."""


class Answering(Struct):
    """What answers need of the run. Plain callables run one at a time, so that their `state` needs no lock."""

    routes: Routes
    settings: Settings
    input: Any
    state: dict[str, Any]
    roots: Callable[[Any], Roots]
    task: Callable[[], Any] = _nobody  # a weak reference
    implementations: dict[str, Callable[..., Any]] = field(default_factory=dict)
    _one_at_a_time: threading.RLock = field(default_factory=threading.RLock)

    def must_wait(self, attempt: Attempt) -> bool:
        """Whether this call takes time that others can use."""
        if attempt.chosen is None:
            return False
        leaf = attempt.chosen.leaf
        sleeps = self.settings.real_sleep and attempt.delay_ms > 0
        return sleeps or isinstance(leaf, Real) or (isinstance(leaf, Call) and self._is_async(leaf))

    def _is_async(self, leaf: Call) -> bool:
        from evalkit.functions.callables import is_async, load_callable

        try:
            return is_async(load_callable(leaf.target))
        except MockError:
            return False  # `begin` will say so

    def begin(self, attempt: Attempt) -> None:
        if attempt.chosen is None:
            return
        leaf = attempt.chosen.leaf
        try:
            raw = self._produce(attempt, leaf)
        except (Exception, SystemExit) as error:
            attempt.error = self.understood(attempt, error)
            return
        if isinstance(leaf, (Call, Real)) and inspect.isawaitable(raw):
            attempt.pending = raw
        else:
            attempt.raw = raw

    def _produce(self, attempt: Attempt, leaf: Leaf) -> Any:
        match leaf:
            case Static():
                return rendered(leaf.value, self._resolver(attempt)) if leaf.templated else leaf.value
            case Failure():
                raise self._failure(attempt, leaf)
            case Call():
                return self._called(attempt, leaf)
            case Real():
                from evalkit.functions.callables import is_async

                real = self._real(attempt)
                # Real functions wait for the network: not in the way of other cases on this loop.
                return asyncio.to_thread(real) if attempt.in_loop and not is_async(real) else real()

    def _resolver(self, attempt: Attempt) -> Any:
        return self.roots(attempt.arguments).resolve

    def _failure(self, attempt: Attempt, leaf: Failure) -> MockedError:
        resolve = self._resolver(attempt)
        error = MockedError(leaf.type, str(rendered(leaf.message, resolve)))
        error.detail = rendered(leaf.detail, resolve)
        error.exception = leaf.exception
        return error

    def _called(self, attempt: Attempt, leaf: Call) -> Any:
        from evalkit.functions.callables import bound, load_callable

        run = {"state": self.state, "input": self.input, "task": self.task()}
        ready = bound(load_callable(leaf.target), copied(attempt.arguments), run)
        with self._one_at_a_time:
            return ready()

    def _real(self, attempt: Attempt) -> Callable[[], Any]:
        if not self.settings.allow_real and not attempt.origin.as_is:
            raise MockError(
                "{$real: true} reaches the real function, which this run does not allow "
                "(--evalkit-allow-real, Settings.allow_real)"
            )
        if attempt.real is not None:
            return attempt.real
        implementation = self.implementations.get(attempt.name)
        if implementation is None:
            raise MockError("{$real: true} finds no real function: none is patched, and the agent brought none")
        return lambda: implementation(**copied(attempt.arguments))

    def finish(self, attempt: Attempt) -> None:
        if attempt.error is None:
            try:
                self._accept(attempt)
            except Exception as error:
                attempt.error = self.understood(attempt, error)
        if attempt.error is not None:
            attempt.result = error_result(attempt.error)

    def _accept(self, attempt: Attempt) -> None:
        leaf = attempt.chosen.leaf if attempt.chosen is not None else None
        if isinstance(leaf, Static):
            attempt.result = attempt.raw
        else:
            lenient = attempt.keep_raw or isinstance(leaf, Real)
            attempt.result = recorded(attempt.raw) if lenient else as_json(attempt.raw)
        if isinstance(leaf, Call) or (isinstance(leaf, Static) and leaf.templated):
            self._check_returns(attempt)
        keep = attempt.keep_raw and not isinstance(leaf, Static)
        attempt.value = attempt.raw if keep else copied(attempt.result)

    def _check_returns(self, attempt: Attempt) -> None:
        declaration = self.routes.declaration(attempt.name)
        if declaration is not None and declaration.returns is not None:
            for path, message in return_problems(attempt.result, declaration.returns):
                raise MockError(broken_returns(attempt.name, path, message))

    def understood(self, attempt: Attempt, error: BaseException) -> BaseException:
        """`error` as the caller gets it: a declared failure, the agent's mistake, or a MockError saying what broke."""
        if isinstance(error, FunctionError):
            return error
        leaf = attempt.chosen.leaf if attempt.chosen is not None else None
        if isinstance(leaf, Real) and not isinstance(error, MockError):
            return error if attempt.keep_raw else _chained(FunctionError(type(error).__name__, str(error)), error)
        if self._is_the_callers(attempt, error):
            why = attempt.violations[0].message if attempt.violations else str(error)
            return FunctionError("invalid_arguments", f"{attempt.name} does not take these arguments: {why}")
        return _chained(MockError(f"the mock of {attempt.name} is broken: {_what(leaf, error)}"), error)

    def _is_the_callers(self, attempt: Attempt, error: BaseException) -> bool:
        """Whether the arguments are to blame, not the mock that stumbles over them."""
        from evalkit.functions.callables import ArgumentsRefusedError

        if isinstance(error, ArgumentsRefusedError):
            declaration = self.routes.declaration(attempt.name)
            return bool(attempt.violations) or declaration is None or declaration.parameters is None
        return isinstance(error, TemplateError) and bool(attempt.violations) and "{ arguments" in f"{error}"


def _chained(error: Exception, cause: BaseException) -> Exception:
    error.__cause__ = cause
    return error


def _what(leaf: Leaf | None, error: BaseException) -> str:
    from evalkit.functions.callables import ArgumentsRefusedError

    if isinstance(error, (MockError, TemplateError)):
        return str(error)
    target = leaf.target if isinstance(leaf, Call) else "it"
    if isinstance(error, NotJsonError):
        return f"{target} returned something else than JSON: {error}"
    if isinstance(error, ArgumentsRefusedError):
        return f"{target} does not take these arguments: {error}"
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return f"{target} raised {type(error).__name__}: {error}{where}"
