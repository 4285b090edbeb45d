"""JSON as models write it: strict first, then with named repairs; never a value that was not written.

A text that is cut off is `Incomplete`, so that a truncated reply never becomes a different call.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from evalkit.providers.textcalls_lenient import Decoded, LenientReader, MalformedJsonError, describe_duplicates
from evalkit.providers.turns import parse_finite

_FIRST_PIECE = 4_000
_LONGEST_TOKEN = 64  # so near to the end of a piece an error may come of the cut
_DEEP = 20_000  # characters that it is worth, in work, to find a value nested beyond what Python's own reader takes


def _make_pairs_hook(notes: list[str]) -> Callable[[list[tuple[str, Any]]], dict[str, Any]]:
    def build_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        built = dict(pairs)
        if len(built) != len(pairs):
            notes.append(describe_duplicates([key for key, _ in pairs]))
        return built

    return build_object


def _refuse_constant(name: str) -> Any:
    raise MalformedJsonError(f"{name} is not JSON")


def decode(text: str, start: int, end: int, *, closed: bool) -> Decoded:
    """Read the value at `start`. `closed`: at `end` an envelope closes, so that missing braces may be added.

    Raises IncompleteJsonError when the text stops inside the value, NotJsonError when it is none.
    """
    try:
        return _decode_strictly(text, start, end)
    except RecursionError:
        work = _DEEP
    except json.JSONDecodeError as error:
        work = error.pos
    except ValueError:
        work = 0
    lenient = LenientReader(text, start, end, closed)
    try:
        return lenient.read()
    except MalformedJsonError as error:
        error.work = work + lenient.position - start
        raise


def _decode_strictly(text: str, start: int, end: int) -> Decoded:
    """Read by Python's own reader, which is handed no more text than it needs: its errors count all lines before them,
    and in a text full of false starts that would be most of the work."""
    size = _FIRST_PIECE
    while True:
        notes: list[str] = []
        decoder = json.JSONDecoder(
            object_pairs_hook=_make_pairs_hook(notes), parse_constant=_refuse_constant, parse_float=parse_finite
        )
        piece = text[start : min(start + size, end)]
        is_whole = start + size >= end
        try:
            value, stop = decoder.raw_decode(piece)
        except json.JSONDecodeError as error:
            is_cut = error.msg.startswith("Unterminated") or error.pos > len(piece) - _LONGEST_TOKEN
            if is_whole or not is_cut:
                raise
        else:
            if is_whole or stop < len(piece):
                return Decoded(value, start + stop, list(dict.fromkeys(notes)))
        size *= 8
