"""Calls that a model wrote as text: read, answered as text, and, where the case asks for it, corrected.

A model that writes calls as text is answered in text too: native results without native calls are refused by the
APIs that pair them. The history has each call in the standard form, so that the model sees the right form and not its
own slips.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from evalkit.model.case import Declaration
from evalkit.model.transcript import ModelCall, ModelTurn

_LONGEST_SLIP = 300
_CALL_OPENING = re.compile(r"[<{\[(]")  # no call is written without one of these
STANDARD_FORM = '<function>{"name": "...", "parameters": {...}}</function>'


class TextReading(Struct, frozen=True):
    """A reply whose text holds calls, or what set out to be one.

    `calls` are to be dispatched; `history` is the turn as the conversation keeps it; `slips` says what was mended or
    refused, for the correction note, and `refused` the latter alone.
    """

    calls: tuple[ModelCall, ...]
    history: ModelTurn
    slips: tuple[str, ...] = ()
    refusals: tuple[str, ...] = ()


def read_text_calls(turn: ModelTurn, functions: Sequence[Declaration]) -> TextReading | None:
    """What the text of `turn` calls; None if it is plain prose."""
    if _CALL_OPENING.search(turn.text) is None:
        return None
    from evalkit.providers.textcalls import parse_text_calls

    parsed = parse_text_calls(turn.text, functions)
    if not parsed.calls and not parsed.rejected and parsed.unfinished is None:
        return None
    calls = tuple(
        ModelCall(name=call.name, arguments=call.arguments, channel="text", repairs=call.repairs, raw=call.raw)
        for call in parsed.calls
    )
    repairs = [f"{call.name}: {repair}" for call in parsed.calls for repair in call.repairs]
    refusals = [f"{refusals.raw} was not made: {refusals.reason}" for refusals in parsed.rejected]
    refusals += [] if parsed.unfinished is None else [f"{parsed.unfinished} was not made: it is not finished"]
    history = replace(turn, text=parsed.history, content=None)
    return TextReading(calls, history, (*repairs, *refusals), tuple(refusals))


def mark_unreadable(turn: ModelTurn, refusals: Sequence[str]) -> ModelTurn:
    """`turn`, which set out to call and could not be read, as the record has it: as if its service said so."""
    reasons = "; ".join(_shorten(slip) for slip in refusals)
    reason = "malformed_call" if turn.finish_reason == "stop" else turn.finish_reason
    return replace(turn, finish_reason=reason, finish_message=turn.finish_message or reasons)


def describe_refused_calls(refusals: Sequence[str], number: int) -> list[str]:
    """What to say of calls that could not be made of a reply others of which were."""
    return [f"model turn {number}: {_shorten(slip)}" for slip in refusals]


def _shorten(slip: str) -> str:
    return slip if len(slip) <= _LONGEST_SLIP else f"{slip[: _LONGEST_SLIP // 2]}…{slip[-_LONGEST_SLIP // 2 :]}"


def describe_skipped_calls(turn: ModelTurn, functions: Sequence[Declaration], number: int) -> list[str]:
    """What to say of calls that stand in the text of a reply which calls natively: those are made, these are not.

    Models write the same call both ways, and making it twice would be worse than leaving it.
    """
    reading = read_text_calls(turn, functions)
    if reading is None or not reading.calls:
        return []
    native_calls = [(call.name, call.arguments) for call in turn.calls]
    text_calls = dict.fromkeys(call.name for call in reading.calls if (call.name, call.arguments) not in native_calls)
    difference = (
        f"others as text, which were not made: {', '.join(text_calls)}"
        if text_calls
        else "the same as text, which was left"
    )
    return [f"model turn {number} called natively and wrote {difference}"]


def format_results(results: Iterable[tuple[ModelCall, Any]]) -> str:
    """The answers to text calls, one line each, in the order of the calls."""
    return "\n".join(
        "<function_result>"
        + json.dumps({"name": call.name, "result": value}, ensure_ascii=False, default=str)
        + "</function_result>"
        for call, value in results
    )


def build_correction_note(slips: Iterable[str]) -> str:
    """What the model is told about the form of its calls."""
    listed = "\n".join(f"- {slip}" for slip in slips)
    return f"Write each function call exactly as {STANDARD_FORM}. In your last reply:\n{listed}"
