"""Real functions swapped for mocks while a case runs: for that case alone, and restored always.

A target is installed once, however many cases patch it. Its hook asks who is calling: the case of the context answers
from its mocks; a case that does not patch this function gets the real one, as it would alone. A call without context
never reaches the real function while cases patch it: it is the only active case's, or it is refused, and the cases that
it may belong to can't be measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from evalkit.errors import MockError
from evalkit.functions.carrying import CASE, bind, carry, stop_carrying
from evalkit.functions.dispatcher import FakeDispatcher
from evalkit.functions.patchable import PatchTarget, patch_target
from evalkit.functions.patchpoint import ACTIVE, LOCK, PatchedCase, PatchPoint
from evalkit.functions.targets import TargetError
from evalkit.model.case import Declaration

__all__ = ["PatchedCase", "bind", "patched", "release"]

_POINTS: dict[str, PatchPoint] = {}  # by target


@contextmanager
def patched(declarations: Iterable[Declaration], dispatcher: FakeDispatcher) -> Iterator[PatchedCase]:
    """While inside, the functions that `declarations` patch answer from `dispatcher`, for this context alone.

    The context is that of the current task or thread and of what it starts: tasks, threads, executors. A target that
    does not exist is a MockError, on entering. Without any `patch` this costs next to nothing.
    """
    with LOCK:
        case = PatchedCase(dispatcher, {_point(d): d.name for d in declarations if d.patch})
        _install(case)
    for point, name in case.names.items():
        if point.implementation is not None:
            dispatcher.implementations.setdefault(name, point.implementation)
    token = CASE.set(case)
    try:
        yield case
    finally:
        CASE.reset(token)
        with LOCK:
            case.leave()
            case.is_closed = True
            if not case.is_kept:
                _remove(case.names)


def release(case: PatchedCase) -> None:
    """Take the patches of a kept case away after all: its abandoned agent has ended."""
    with LOCK:
        if case.is_kept:
            case.is_kept = False
            if case.is_closed:  # otherwise `patched` takes them away when it ends
                _remove(case.names)


def _point(declaration: Declaration) -> PatchPoint:
    """The point of a declaration's target. LOCK is held."""
    text = str(declaration.patch)
    known = _POINTS.get(text)
    if known is not None and known.users:
        return known
    try:
        target = patch_target(text)
    except TargetError as error:
        raise MockError(f"functions.{declaration.name}.patch: {error}") from error
    if known is None or known.target.function is not target.function:  # a module that was loaded anew, else the same
        known = _POINTS[text] = _same_function(target) or PatchPoint(target)
    return known


def _same_function(target: PatchTarget) -> PatchPoint | None:
    """The point of another name for the same function: one function has one hook."""
    points = _POINTS.values()
    return next((point for point in points if target.by_code and point.target.function is target.function), None)


def _install(case: PatchedCase) -> None:
    """All of the case's points or none. LOCK is held."""
    done: list[PatchPoint] = []
    try:
        for point in case.names:
            if not point.users:
                point.install()
            point.users += 1
            done.append(point)
    except Exception as error:
        _remove(done)
        target = next(point.target.text for point in case.names if point not in done)
        raise MockError(f"'{target}' can't be patched: {error}") from error
    if done:
        carry("patches")
    ACTIVE.append(case)


def _remove(points: Iterable[PatchPoint]) -> None:
    for point in points:
        point.users -= 1
        if not point.users:
            point.remove()
    if not any(point.users for point in _POINTS.values()):
        stop_carrying("patches")
