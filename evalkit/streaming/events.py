"""A streamed answer's body as JSON values: server-sent events, a JSON array, or one value after the other."""

from __future__ import annotations

import json
import re
from typing import Any


def parse_values(body: str) -> list[Any]:
    """Parse the JSON values of a streamed body. Raises ValueError where one does not parse."""
    values: list[Any] = []
    data: list[str] = []
    bare: list[str] = []  # an error that breaks into the stream, and whole answers without events
    for line in [*_LINE_END.split(body), ""]:
        if line.startswith("data:"):
            data.append(line[len("data:") :])
        elif line.strip():
            bare.append(line)
        elif data:
            values += _parse_event(data)
            data = []
    return values + _parse_json_values("\n".join(bare))


def _parse_event(lines: list[str]) -> list[Any]:
    """Parse one event's data: a value over all its lines, or, from servers that omit the empty line, a value on
    each."""
    lines = [line for line in lines if line.strip() not in ("", "[DONE]")]
    try:
        return [json.loads("\n".join(lines))] if lines else []
    except ValueError:
        if len(lines) == 1:
            raise
        return [json.loads(line) for line in lines]


def _parse_json_values(text: str) -> list[Any]:
    """JSON values that follow each other; those of an array one by one. Other lines (`event:`, comments) are none."""
    values: list[Any] = []
    position = 0
    while (start := _VALUE.search(text, position)) is not None:
        value, position = _DECODER.raw_decode(text, start.start(1))
        values += value if isinstance(value, list) else [value]
    return values


_LINE_END = re.compile(r"\r\n|\n|\r")  # str.splitlines would also cut at what JSON strings may hold
_DECODER = json.JSONDecoder()
_VALUE = re.compile(r"^\s*([{\[])", re.MULTILINE)
