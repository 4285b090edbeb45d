"""Gemini's calls in a stream: whole ones, and those whose arguments come as `partialArgs` (Vertex)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_PATH_STEP = re.compile(r"\.([A-Za-z_][\w-]*)|\[(\d+)\]|\[(?:'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\")\]")
_SNAKE = re.compile(r"_([a-z])")
_WIDEST_GAP = 10_000  # items of a list that may still be to come; more would only fill the memory


class CallParts:
    """Makes whole parts of those that hold calls in pieces. `open` is the part of a call whose arguments are still
    arriving, `lost` one that another call followed before it was whole."""

    def __init__(self) -> None:
        self.open_part: dict[str, Any] | None = None
        self.lost_part: dict[str, Any] | None = None

    def add(self, part: Mapping[str, Any], call: Mapping[str, Any]) -> dict[str, Any] | None:
        """Take `part`, which holds `call`; the part that is whole with it, if one is."""
        if self.open_part is not None and _is_another(call, self.open_part["functionCall"]):
            self.lost_part, self.open_part = self.lost_part or self.open_part, None
        partial = call.get("partialArgs")
        if self.open_part is None:
            if not call.get("name"):
                return None  # a stray end marker
            if not partial and not call.get("willContinue"):
                return dict(part)
            self.open_part = _start_part(part, call)
        if "thoughtSignature" in part:
            self.open_part.setdefault("thoughtSignature", part["thoughtSignature"])
        for piece in partial if isinstance(partial, list) else ():
            _set_value(self.open_part["functionCall"]["args"], piece)
        if call.get("willContinue"):
            return None
        complete_part, self.open_part = self.open_part, None
        return complete_part

    @property
    def unfinished(self) -> str | None:
        """What there is of a call that is not whole."""
        part = self.lost_part or self.open_part
        return None if part is None else format_call(part["functionCall"])


def _is_another(call: Mapping[str, Any], open_call: Mapping[str, Any]) -> bool:
    name, id = call.get("name"), call.get("id")
    return bool(name) and (name != open_call["name"] or bool(id and open_call.get("id") and id != open_call["id"]))


def _start_part(part: Mapping[str, Any], call: Mapping[str, Any]) -> dict[str, Any]:
    fields = {key: value for key, value in call.items() if key not in ("partialArgs", "willContinue")}
    arguments = call.get("args")
    return {**part, "functionCall": {**fields, "args": dict(arguments) if isinstance(arguments, Mapping) else {}}}


def format_call(call: Mapping[str, Any]) -> str:
    """A call for a message."""
    return f"{call.get('name')}({call.get('args')})"


class GeminiCalls:
    """Collects calls part by part. `completed`: (name, arguments, id); `unfinished`: what there is of one that is no
    call, or not yet."""

    def __init__(self) -> None:
        self.completed: list[tuple[str, dict[str, Any], str | None]] = []
        self._parts = CallParts()
        self._unreadable: str | None = None

    @property
    def unfinished(self) -> str | None:
        return self._unreadable or self._parts.unfinished

    def add_part(self, part: Mapping[str, Any]) -> None:
        part = to_wire_keys(part)
        call = part.get("functionCall")
        complete_part = self._parts.add(part, call) if isinstance(call, Mapping) else None
        if complete_part is None:
            return
        complete_call = complete_part["functionCall"]
        arguments = complete_call.get("args")
        if arguments is None or isinstance(arguments, Mapping):
            self.completed.append((complete_call["name"], dict(arguments or {}), complete_call.get("id")))
        else:
            self._unreadable = self._unreadable or format_call(complete_call)


def to_wire_keys(data: Any) -> Any:
    """JSON of the API with the keys that the wire has, where Python's client spells them in its own way."""
    if isinstance(data, list):
        return [to_wire_keys(item) for item in data]
    if not isinstance(data, Mapping):
        return data
    return {
        _SNAKE.sub(lambda found: found[1].upper(), key): value if key == "args" else to_wire_keys(value)
        for key, value in data.items()
    }


def _set_value(arguments: dict[str, Any], piece: Any) -> None:
    """Set the value that a `partialArgs` piece brings; chunks of a string append to it."""
    if not isinstance(piece, Mapping):
        return
    kinds = ("stringValue", "numberValue", "boolValue")
    value = next((piece[kind] for kind in kinds if piece.get(kind) is not None), None)
    steps: list[Any] = [
        int(match[2]) if match[2] else match[1] or match[3] or match[4] or ""
        for match in _PATH_STEP.finditer(str(piece.get("jsonPath", "")))
    ]
    target: Any = arguments
    for step, following in zip(steps, [*steps[1:], None], strict=False):  # without steps there is nothing to set
        if isinstance(step, int) is not isinstance(target, list):
            return
        if isinstance(target, list):
            if step > len(target) + _WIDEST_GAP:
                return
            target.extend([None] * (step + 1 - len(target)))
        old = target[step] if isinstance(target, list) else target.get(step)
        if following is None:
            target[step] = old + value if isinstance(old, str) and isinstance(value, str) else value
        else:
            target[step] = old if isinstance(old, (dict, list)) else [] if isinstance(following, int) else {}
            target = target[step]
