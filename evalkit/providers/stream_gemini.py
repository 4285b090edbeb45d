"""Gemini's calls in a stream: whole ones, and those whose arguments come as `partialArgs` (Vertex)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_STEP = re.compile(r"\.([A-Za-z_][\w-]*)|\[(\d+)\]|\[(?:'([^']*)'|\"([^\"]*)\")\]")


class GeminiCalls:
    """Collects calls part by part. `completed`: (name, arguments, id); `open`: what there is of an unfinished one."""

    def __init__(self) -> None:
        self.completed: list[tuple[str, dict[str, Any], str | None]] = []
        self._name = ""
        self._id: str | None = None
        self._arguments: dict[str, Any] | None = None

    @property
    def open(self) -> str | None:
        return None if self._arguments is None else f"{self._name}({self._arguments})"

    def feed(self, part: Mapping[str, Any]) -> None:
        call = part.get("functionCall", part.get("function_call"))
        if not isinstance(call, Mapping):
            return
        partial = call.get("partialArgs") or call.get("partial_args") or ()
        goes_on = bool(call.get("willContinue") or call.get("will_continue"))
        if self._arguments is None:
            if not call.get("name"):
                return  # the stray end mark `{"functionCall": {}}`
            self._name, self._id, self._arguments = call["name"], call.get("id"), dict(call.get("args") or {})
        for piece in partial:
            _put(self._arguments, piece.get("jsonPath") or piece.get("json_path") or "", _value(piece))
        if not goes_on:
            self.completed.append((self._name, self._arguments, self._id))
            self._arguments = None


def _value(piece: Mapping[str, Any]) -> Any:
    for key in ("stringValue", "string_value", "numberValue", "number_value", "boolValue", "bool_value"):
        if key in piece:
            return piece[key]
    return None


def _put(root: dict[str, Any], path: str, value: Any) -> None:
    """Set `value` at a JSON path such as ``$.a.b[0]``; a string is appended to the one that is there."""
    steps = [int(m[2]) if m[2] else m[1] or m[3] or m[4] or "" for m in _STEP.finditer(path)]
    current: Any = root
    for step, following in zip(steps, [*steps[1:], None], strict=False):  # without steps there is nothing to set
        if isinstance(current, list) and isinstance(step, int):
            current.extend([None] * (step + 1 - len(current)))
            known = current[step]
        else:
            known = current.get(step)
        if following is None:
            current[step] = known + value if isinstance(known, str) and isinstance(value, str) else value
            return
        if known is None:
            known = current[step] = [] if isinstance(following, int) else {}
        current = known
