"""Which points the cases patch, put in place for the first of them and taken away after the last."""

from __future__ import annotations

from collections.abc import Iterable

from evalkit.errors import MockError
from evalkit.functions.carrying import start_propagation, stop_propagation
from evalkit.functions.patchable import PatchTarget, find_patch_target
from evalkit.functions.patchpoint import PatchPoint
from evalkit.functions.targets import TargetError
from evalkit.model.case import Declaration

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
