"""Real functions swapped for mocks while a case runs: for that case alone, and restored always.

A target is installed once, however many cases patch it. Its hook asks who is calling: the case of the context answers
from its mocks; a case that does not patch this function gets the real one, as it would alone. A call without context
never reaches the real function while cases patch it: it is the only active case's, or it is refused, and the cases that
it may belong to can't be measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from evalkit.errors import MockError
from evalkit.functions.dispatcher import FakeDispatcher
from evalkit.functions.patching.context_propagation import (
    ACTIVE_CASES,
    CURRENT_CASE,
    PATCH_LOCK,
    PatchedCase,
    start_propagation,
    stop_propagation,
)
from evalkit.functions.patching.points import PatchPoint
from evalkit.functions.targets import PatchTarget, TargetError, find_patch_target
from evalkit.model.case import Declaration

if TYPE_CHECKING:
    import asyncio


@contextmanager
def patch_functions(declarations: Iterable[Declaration], dispatcher: FakeDispatcher) -> Iterator[PatchedCase]:
    """While inside, the functions that `declarations` patch answer from `dispatcher`, for this context alone.

    The context is that of the current task or thread and of what it starts: tasks, threads, executors. A target that
    does not exist is a MockError, on entering. Without any `patch` this costs next to nothing.
    """
    with PATCH_LOCK:
        case = PatchedCase(dispatcher, _install_declared(declarations), _remove_points)
        ACTIVE_CASES.append(case)
    before = _list_tasks() if case.names else set()
    for point, name in case.names.items():
        if point.implementation is not None:
            dispatcher.implementations.setdefault(name, point.implementation)
    token = CURRENT_CASE.set(case)
    try:
        yield case
    finally:
        CURRENT_CASE.reset(token)
        for task in _list_tasks() - before if case.names else ():
            if _may_belong_to(task, case):
                case.start_worker()
                task.add_done_callback(case.finish_worker)
        case.close()


def _list_tasks() -> set[asyncio.Task[Any]]:
    """What runs on this loop beside the current task."""
    import asyncio

    try:
        return asyncio.all_tasks() - {asyncio.current_task()}
    except RuntimeError:
        return set()  # there is no loop


def _may_belong_to(task: asyncio.Task[Any], case: PatchedCase) -> bool:
    """Whether the agent of `case` may have started `task`, for which nobody waited. Before Python 3.12 no task tells:
    those of cases that overlap are taken for it too, until they end."""
    context = getattr(task, "get_context", None)
    return context is None or context().get(CURRENT_CASE) is case


def _install_declared(declarations: Iterable[Declaration]) -> Mapping[PatchPoint, str]:
    """Nothing of patching is imported for a case that patches nothing."""
    patches = [declaration for declaration in declarations if declaration.patch]
    if not patches:
        return {}

    return install_patches(patches)


def _remove_points(points: Iterable[PatchPoint]) -> None:
    if points:
        remove_patches(points)


# Which points the cases patch, put in place for the first of them and taken away after the last.

_POINTS: dict[str, PatchPoint] = {}  # by target


def install_patches(declarations: Iterable[Declaration]) -> dict[PatchPoint, str]:
    """The points of what a case patches, with its names for them: all are put in place, or none and a MockError.

    LOCK is held.
    """
    names = {_find_point(declaration): declaration.name for declaration in declarations}
    installed_points: list[PatchPoint] = []
    try:
        for point in names:
            if not point.users:
                point.install()
            point.users += 1
            installed_points.append(point)
    except Exception as error:
        remove_patches(installed_points)
        target = next(point.target.text for point in names if point not in installed_points)
        raise MockError(f"'{target}' can't be patched: {error}") from error
    start_propagation("patches")
    return names


def remove_patches(points: Iterable[PatchPoint]) -> None:
    """One case less patches these. LOCK is held."""
    for point in points:
        point.users -= 1
        if not point.users:
            point.remove()
    if not any(point.users for point in _POINTS.values()):
        stop_propagation("patches")


def _find_point(declaration: Declaration) -> PatchPoint:
    """The point of a declaration's target. LOCK is held."""
    text = str(declaration.patch)
    point = _POINTS.get(text)
    if point is not None and point.users:
        return point
    try:
        target = find_patch_target(text)
    except TargetError as error:
        raise MockError(f"functions.{declaration.name}.patch: {error}") from error
    if point is None or point.target.function is not target.function:  # a module that was loaded anew, else the same
        point = _POINTS[text] = _find_point_of_function(target) or PatchPoint(target)
    return point


def _find_point_of_function(target: PatchTarget) -> PatchPoint | None:
    """The point of another name for the same function: one function has one hook."""
    points = _POINTS.values()
    return next((point for point in points if target.by_code and point.target.function is target.function), None)
