"""The parts of Gemini's contents as they arrive: whole calls, those whose arguments come in pieces (Vertex), and keys
as Python's client spells them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeVar, cast

from evalkit.jsonvalue import JsonDict, JsonObject

T = TypeVar("T")
_PATH_STEP = re.compile(r"\.([A-Za-z_][\w-]*)|\[(\d+)\]|\[(?:'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\")\]")
_SNAKE = re.compile(r"_([a-z])")
_WIDEST_GAP = 10_000  # items of a list that may still be to come; more would only fill the memory


class CallParts:
    """Whole parts out of those that hold calls in pieces. `open_part` is the part of a call whose arguments are still
    arriving, `lost_part` one that another call followed before it was whole."""

    def __init__(self) -> None:
        self.open_part: JsonDict | None = None
        self.lost_part: JsonDict | None = None

    def add(self, part: JsonObject, call: JsonObject) -> JsonDict | None:
        """Add `part`, which holds `call`. Return the part that is whole with it, if one is."""
        if self.open_part is not None:
            name, id, open_call = call.get("name"), call.get("id"), self.open_part["functionCall"]
            is_other_id = id and open_call.get("id") and id != open_call["id"]
            if name and (name != open_call["name"] or is_other_id):
                self.lost_part, self.open_part = self.lost_part or self.open_part, None
        partial = call.get("partialArgs")
        if self.open_part is None:
            if not call.get("name"):
                return None  # a stray end marker
            if not partial and not call.get("willContinue"):
                return dict(part)
            fields = {key: value for key, value in call.items() if key not in ("partialArgs", "willContinue")}
            arguments = call.get("args")
            fields["args"] = dict(arguments) if isinstance(arguments, Mapping) else {}
            self.open_part = {**part, "functionCall": fields}
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
        """The description of a call that is not whole."""
        part = self.lost_part or self.open_part
        return None if part is None else format_call(part["functionCall"])


def format_call(call: JsonObject) -> str:
    """Format a call for a message."""
    return f"{call.get('name')}({call.get('args')})"


_DATA = frozenset({"args", "response", "parameters", "parameters_json_schema", "parametersJsonSchema"})  # no API's keys


def to_wire_keys(data: T) -> T:
    """JSON of the API with the keys that the wire has, where Python's client spells them in its own way."""
    converted: object = data
    if isinstance(data, list):
        converted = [to_wire_keys(item) for item in data]
    elif isinstance(data, Mapping):
        converted = {
            _SNAKE.sub(lambda match: match[1].upper(), key): value if key in _DATA else to_wire_keys(value)
            for key, value in data.items()
        }
    return cast("T", converted)


def _set_value(arguments: JsonDict, piece: object) -> None:
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
        if isinstance(target, list) and isinstance(step, int):
            if step > len(target) + _WIDEST_GAP:
                return
            target.extend([None] * (step + 1 - len(target)))
            old = target[step]
        elif isinstance(target, dict) and isinstance(step, str):
            old = target.get(step)
        else:
            return
        if following is None:
            target[step] = old + value if isinstance(old, str) and isinstance(value, str) else value
        else:
            target[step] = old if isinstance(old, (dict, list)) else [] if isinstance(following, int) else {}
            target = target[step]
