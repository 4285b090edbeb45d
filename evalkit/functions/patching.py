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

from evalkit.functions.active import ACTIVE_CASES, CURRENT_CASE, PATCH_LOCK, PatchedCase
from evalkit.functions.dispatcher import FakeDispatcher
from evalkit.model.case import Declaration

if TYPE_CHECKING:
    import asyncio

    from evalkit.functions.patchpoint import PatchPoint


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
    from evalkit.functions.installing import install_patches

    return install_patches(patches)


def _remove_points(points: Iterable[PatchPoint]) -> None:
    if points:
        from evalkit.functions.installing import remove_patches

        remove_patches(points)
