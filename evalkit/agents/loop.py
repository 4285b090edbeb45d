"""The function-calling loop: ask, dispatch every call of the reply, send the answers back, until a reply has none.

How it ends is a value, never an exception: ``completed``; ``max_iterations``; ``deadline``; ``blocked`` (a safety
filter); ``malformed_call`` (the service says so, or the text holds a call that can't be read); ``length``,
``truncated``, ``empty`` and ``other`` (a reply without calls that is not whole); ``provider_error``; ``budget``
(nothing is left to spend); or the caller's word for a required last call that is missing. The exceptions are a missing,
stale or broken cassette: there is no reply to go on with.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING

from msgspec.structs import replace

from evalkit.agents.reply import COMPLETED, Reply
from evalkit.agents.textturns import (
    TextReading,
    build_correction_note,
    describe_refused_calls,
    describe_skipped_calls,
    format_results,
    mark_unreadable,
    read_text_calls,
)
from evalkit.errors import BudgetSpentError, ProviderError
from evalkit.model.case import Declaration
from evalkit.model.transcript import ModelRequest, ModelTurn

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
