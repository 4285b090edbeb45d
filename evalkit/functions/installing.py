"""Which points the cases patch, put in place for the first of them and taken away after the last."""

from __future__ import annotations

from collections.abc import Iterable

from evalkit.errors import MockError
from evalkit.functions.carrying import carry, stop_carrying
from evalkit.functions.patchable import PatchTarget, patch_target
from evalkit.functions.patchpoint import PatchPoint
from evalkit.functions.targets import TargetError
from evalkit.model.case import Declaration

_POINTS: dict[str, PatchPoint] = {}  # by target


def install(declarations: Iterable[Declaration]) -> dict[PatchPoint, str]:
    """The points of what a case patches, with its names for them: all are put in place, or none and a MockError.

    LOCK is held.
    """
    names = {_point(declaration): declaration.name for declaration in declarations}
    done: list[PatchPoint] = []
    try:
        for point in names:
            if not point.users:
                point.install()
            point.users += 1
            done.append(point)
    except Exception as error:
        remove(done)
        target = next(point.target.text for point in names if point not in done)
        raise MockError(f"'{target}' can't be patched: {error}") from error
    carry("patches")
    return names


def remove(points: Iterable[PatchPoint]) -> None:
    """One case less patches these. LOCK is held."""
    for point in points:
        point.users -= 1
        if not point.users:
            point.remove()
    if not any(point.users for point in _POINTS.values()):
        stop_carrying("patches")


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
