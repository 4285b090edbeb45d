"""Rewriting what a case expects from what happened, key by key: `--evalkit-update`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from evalkit.errors import EvalkitError, KeyPath, format_path, parse_path
from evalkit.lazy import LazyModule
from evalkit.records.template import TemplateError, follow_path, is_operator, to_literal
from evalkit.records.verdict import Reason

if TYPE_CHECKING:
    from evalkit.operators import compile as operators
else:
    operators = LazyModule("evalkit.operators.compile")


class UpdateRefusedError(EvalkitError):
    """Why an expectation is not rewritten."""


class Editor(Protocol):
    """The file of a case, in which values are replaced."""

    def has(self, path: KeyPath) -> bool:
        """Return whether something stands at `path`."""

    def get(self, path: KeyPath) -> Any:
        """Return what stands at `path`; None if nothing does."""

    def set(self, path: KeyPath, value: object) -> None:
        """Write a value."""

    def remove(self, path: KeyPath) -> None:
        """Remove a value with its key, or an item."""

    def set_items(self, path: KeyPath, items: Sequence[object]) -> None:
        """Make the list at `path` of its own items, by number, and of new ones."""


def require_own(editor: Editor, path: KeyPath) -> None:
    """Refuse to rewrite what does not stand in the case's own file."""
    if not editor.has(path):
        raise UpdateRefusedError(f"{format_path(path)} does not stand in the case's own file, but in what it inherits")


def update_value(editor: Editor, base: KeyPath, reason: Reason, actual: object, *, keeps_empty: bool = False) -> None:
    """Write what is `actual` at the path of `reason` below `base`; the whole list, where it differs inside one.

    `keeps_empty`: an empty value is written as it is; as part of something it would say nothing.
    """
    inside = next((number for number, step in enumerate(reason.path) if isinstance(step, int)), len(reason.path))
    path = reason.path[:inside]
    while path and not editor.has((*base, *path[:-1])):
        path = path[:-1]
    while path and is_operator(editor.get((*base, *path[:-1]))):
        path = path[:-1]
    try:
        value = follow_path(actual, path, "")
    except TemplateError:
        editor.remove((*base, *path))
        return
    node = editor.get((*base, *path)) if editor.has((*base, *path)) else None
    others = {key: item for key, item in node.items() if key != "$eq"} if is_operator(node) and "$eq" in node else {}
    if others and operators.compile_value(others, mode="contain").is_match(value):
        editor.set((*base, *path, "$eq"), to_literal(value))  # {$type: integer, $eq: 6}: the rest still holds
        return
    is_empty = value in ("", [], {}) and not keeps_empty
    editor.set((*base, *path), {"$eq": value} if is_empty and path else to_literal(value))


def drop_phrase(editor: Editor, path: KeyPath, reason: Reason) -> None:
    """Remove the phrase that `reason` is about, or the key at `path` if it holds no other."""
    place = parse_path(reason.place)
    require_own(editor, path)
    drop_item(editor, path, place[-1] if len(place) > len(path) and isinstance(place[-1], int) else None)


def drop_item(editor: Editor, path: KeyPath, number: int | None) -> None:
    """Remove an item of the list at `path`, or all of it where nothing else would be left."""
    listed = editor.get(path)
    is_one_of_many = number is not None and isinstance(listed, list) and len(listed) > 1
    editor.remove((*path, number) if is_one_of_many and number is not None else path)
