"""The function-calling loop: ask, dispatch every call of the reply, send the answers back, until a reply has none.

How it ends is a value, never an exception: ``completed``; ``max_iterations``; ``deadline``; ``blocked`` (a safety
filter); ``malformed_call`` (the service says so, or the text holds a call that can't be read); ``length``,
``truncated``, ``empty`` and ``other`` (a reply without calls that is not whole); ``provider_error``; ``budget``
(nothing is left to spend); or the caller's word for a required last call that is missing. The exceptions are a missing,
stale or broken cassette: there is no reply to go on with.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from evalkit.agents.reply import COMPLETED, Reply
from evalkit.errors import BudgetSpentError, ProviderError
from evalkit.model.case import Declaration
from evalkit.model.transcript import ModelCall, ModelRequest, ModelTurn

if TYPE_CHECKING:
    from evalkit.agents.instruction import Instruction
    from evalkit.agents.task import Task


# A reply without calls: what its finish reason means for the run.
STOP_REASONS = {"stop": COMPLETED, "tool_calls": COMPLETED, "content_filter": "blocked"}


async def run_loop(
    task: Task,
    instruction: Instruction,
    *,
    message: str | None = None,
    require_last: str | None = None,
    missing_code: str = "required_call_missing",
) -> Reply:
    """Answer the user's latest message with `instruction`; `task.run_instruction` documents the arguments."""
    functions = instruction.available_functions
    if functions is None:
        functions = task.functions.declarations
    else:
        task.declare(functions)
    task.instruction_used = instruction.name
    before = len(task.calls)
    if message is not None:
        _replace_message(task, message)
    stop_reason, text = await _run_turns(
        task,
        ModelRequest(
            system=instruction.body,
            functions=functions,
            temperature=task.settings.temperature,
            seed=task.settings.seed,
        ),
    )
    if stop_reason == COMPLETED and require_last and not _is_last_call(task, require_last, before):
        stop_reason = missing_code
    return Reply(text, stop_reason=stop_reason, instruction_used=instruction.name)


def _replace_message(task: Task, message: str) -> None:
    """Replace the user's latest message."""
    if task.messages and task.messages[-1].get("role") == "user":
        task.messages.pop()
    task.messages.append({"role": "user", "text": message})


async def _run_turns(task: Task, request: ModelRequest) -> tuple[str, str]:
    """The loop itself: the stop reason, and the text of the last reply."""
    text = ""
    for _ in range(task.settings.max_iterations):
        if task.clock_ms > task.settings.deadline_s * 1000:
            return "deadline", text
        try:
            turn = await task.turn(replace(request, messages=tuple(task.messages)))
        except (ProviderError, BudgetSpentError) as error:
            task.record_fault(error)
            return error.code, text
        text = turn.text
        stop_reason = await _handle_turn(task, turn, request.functions)
        if stop_reason is not None:
            return stop_reason, text
    return "max_iterations", text


async def _handle_turn(task: Task, turn: ModelTurn, functions: Sequence[Declaration]) -> str | None:
    """Dispatch the calls of `turn` and put the answers into the conversation, or say why the run stops here."""
    function_names = {function.name for function in functions} or None
    if not turn.calls and functions and (reading := read_text_calls(turn, functions)) is not None:
        if reading.calls:
            task.warnings += describe_refused_calls(reading.refusals, len(task.turns))
        else:
            task.replace_last_turn(mark_unreadable(turn, reading.refusals))
        return await _handle_text_calls(task, turn, reading, function_names)
    task.messages.append({"role": "model", "turn": turn})
    if not turn.calls:
        return STOP_REASONS.get(turn.finish_reason, turn.finish_reason)
    if turn.text and functions:
        task.warnings += describe_skipped_calls(turn, functions, len(task.turns))
    task.messages.append({"role": "function", "results": await task.execute_calls(turn, offered_names=function_names)})
    return None


async def _handle_text_calls(
    task: Task, turn: ModelTurn, reading: TextReading, function_names: AbstractSet[str] | None
) -> str | None:
    """The same for calls that stand in the reply's text."""
    task.messages.append({"role": "model", "turn": reading.history})
    correct = task.settings.correct_text_calls
    if not reading.calls and not correct:
        return "malformed_call"
    results = (
        await task.execute_calls(replace(turn, calls=reading.calls), offered_names=function_names)
        if reading.calls
        else []
    )
    parts = [format_results(results), build_correction_note(reading.slips) if correct and reading.slips else ""]
    task.messages.append({"role": "user", "text": "\n\n".join(part for part in parts if part)})
    return None


def _is_last_call(task: Task, name: str, before: int) -> bool:
    """Whether the last function call since `before` is a successful call of `name`."""
    calls = task.calls[before:]
    return bool(calls) and calls[-1].name == name and calls[-1].outcome == "ok"


# Calls that a model wrote as text: read, answered as text, and, where the case asks for it, corrected.
#
# A model that writes calls as text is answered in text too: native results without native calls are refused by the
# APIs that pair them. The history has each call in the standard form, so that the model sees the right form and not its
# own slips.

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
    from evalkit.textcalls.search import parse_text_calls

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
