"""A verdict as a person reads it: words first, paint later, and nowhere else.

`lines` makes styled spans of a verdict, a pure function; `render` joins them to plain text and `paint` to text with
colours (rich, imported only there). Everything that came from an agent, a model or a file passes `visible`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from msgspec import Struct
from msgspec.structs import replace

from evalkit.model.transcript import FunctionCall
from evalkit.model.verdict import ERROR, FAILED, NOT_RUN, PASSED, CallVerdict, CheckResult, Reason, Verdict
from evalkit.reports.conversation import build_conversation, list_user_turns
from evalkit.reports.faults import build_fault_lines, collect_fault_reasons
from evalkit.reports.hostile import escape_controls, escape_lines, fit_to_encoding
from evalkit.reports.spans import Line, join_spans
from evalkit.reports.values import cut_at_word, format_arguments, format_json

MARKS = {PASSED: "✓", FAILED: "✗", ERROR: "!", NOT_RUN: "–"}
_STYLES = {"good": "green", "bad": "red bold", "error": "yellow bold", "quiet": "dim", "name": "bold", "": ""}
_MARK_STYLES = {PASSED: "good", FAILED: "bad", ERROR: "error", NOT_RUN: "quiet"}
_WIDEST = 100
_LONGEST_MESSAGE = 4000
_NARROWEST = 110  # lines of calls are not cut for terminals that are narrower; those break them
_ROOM = 70  # columns for arguments below which the result goes to a line of its own
_MOST_RUNS = 3


class TraceOptions(Struct, frozen=True):
    """How a trace is laid out. `width` in columns; `encoding` of the terminal, None for Unicode text.

    `breaks_at`: the columns of a real terminal, where a result that would be broken off goes to a line of its own.
    """

    width: int = _WIDEST
    breaks_at: int | None = None
    encoding: str | None = None
    conversation: bool = False


def render_trace(verdict: Verdict, options: TraceOptions | None = None) -> str:
    """The trace as plain text, lines joined by line feeds, without a trailing one."""
    options = options or TraceOptions()
    return fit_to_encoding(
        "\n".join(join_spans(line) for line in build_trace_lines(verdict, options)), options.encoding
    )


def render_ansi(lines: Iterable[Line], encoding: str | None = None) -> str:
    """Lines as text with ANSI colours, for a terminal."""
    from io import StringIO

    from rich.console import Console
    from rich.text import Text

    out = StringIO()
    console = Console(file=out, force_terminal=True, color_system="standard", width=10_000, legacy_windows=False)
    for line in lines:
        spans = [(fit_to_encoding(text, encoding), _STYLES[style]) for text, style in line]
        console.print(Text.assemble(*spans), soft_wrap=True)
    return out.getvalue().rstrip("\n")


def build_trace_lines(verdict: Verdict, options: TraceOptions) -> list[Line]:
    """The trace, line by line: the header, the calls with what is wrong at each, what is wrong beside them."""
    trace_lines = [_build_header(verdict, min(options.width, _WIDEST))]
    if verdict.runs:
        trace_lines += _build_runs(verdict, options)
    else:
        trace_lines += _build_body(verdict, options)
    return trace_lines + build_fault_lines(verdict)


def _build_header(verdict: Verdict, width: int) -> Line:
    name = escape_controls(PurePosixPath(verdict.case_id).stem or "case")
    mark = (f"{MARKS[verdict.status]} ", _MARK_STYLES[verdict.status])
    facts = " · ".join(_list_facts(verdict))
    room = width - len(name) - len(facts) - 6
    description = (
        cut_at_word(" ".join(escape_controls(verdict.description, keep="\n").split()), max(room, 0))
        if room >= 12
        else ""
    )
    if not facts:
        return (mark, (name, "name"), (f"  {description}" if description else "", ""))
    used = 2 + len(name) + (2 + len(description) if description else 0)
    gap = " " * max(width - used - len(facts), 2)
    return (mark, (name, "name"), (f"  {description}" if description else "", ""), (gap + facts, "quiet"))


def _list_facts(verdict: Verdict) -> Iterator[str]:
    if verdict.runs:
        passed = sum(run.status == PASSED for run in verdict.runs)
        planned = f" of {verdict.runs_planned}" if len(verdict.runs) < verdict.runs_planned else ""  # settled early
        yield f"{passed} of {len(verdict.runs)} runs passed, {verdict.min_pass}{planned} wanted"
        return
    if verdict.status == NOT_RUN or (verdict.status == ERROR and not verdict.transcript.calls):
        return
    transcript = verdict.transcript
    yield _format_count(len(transcript.calls), "call")
    if transcript.turns:
        yield _format_count(len(transcript.turns), "turn")
    if transcript.timing is not None and transcript.timing.elapsed_ms >= 1:
        yield format_duration(transcript.timing.elapsed_ms)


def _format_count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def format_duration(milliseconds: float) -> str:
    """``80 ms``, ``0.8 s``, ``12 s``, ``2 min 5 s``."""
    seconds = milliseconds / 1000
    if seconds < 0.1:
        return f"{milliseconds:.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{int(seconds // 60)} min {int(seconds % 60)} s"


def _build_body(verdict: Verdict, options: TraceOptions) -> list[Line]:
    body: list[Line] = []
    reported: set[tuple[str, str, int | None]] = set()
    for call in verdict.calls:
        body += _build_call_lines(call, reported, options)
    if options.conversation:
        body += build_conversation(verdict.transcript, list_user_turns(verdict.case))
    reported |= collect_fault_reasons(verdict)
    grade_lines: list[Line] = []
    if verdict.transcript.gradings:
        from evalkit.reports.graded import build_grade_lines, collect_grade_reasons

        grade_lines = build_grade_lines(verdict)
        reported |= collect_grade_reasons(verdict)
    remaining = [reason for reason in verdict.reasons if _get_reason_key(reason) not in reported]
    fault = verdict.transcript.fault
    if fault is not None and remaining and remaining[0].code == fault.code:  # it raised, it ran into its deadline
        body[:0] = _build_message(remaining.pop(0).message, "  ", _get_style(verdict.status))
    for reason in dict.fromkeys(map(_get_reason_key, remaining)):
        body += _build_message(reason[1] or reason[0], "  ", _get_style(verdict.status))
    body += [*grade_lines, *_build_remarks(verdict)]
    return body


def _get_style(status: str) -> str:
    return "bad" if status == FAILED else "error"


def _get_reason_key(reason: Reason) -> tuple[str, str, int | None]:
    return (reason.code, reason.message, reason.call)


def _build_call_lines(
    verdict: CallVerdict, reported: set[tuple[str, str, int | None]], options: TraceOptions
) -> list[Line]:
    mark = (f"{MARKS[verdict.status]} ", _MARK_STYLES[verdict.status])
    failed = [result for result in verdict.results if result.status != PASSED]
    reported.update(_get_reason_key(reason) for result in failed for reason in result.reasons)
    if verdict.call is None:
        return _build_missing_call(verdict, mark, failed)
    width = max(options.width, _NARROWEST)
    first, *continuation = _format_call(verdict.call, width - 7, (options.breaks_at or width) - 7)
    number = f"{verdict.call.index + 1:>3}. "  # as messages name the call, whatever was not called before it
    call_lines: list[Line] = [
        ((number, "quiet"), mark, (first, "")),
        *(((" " * 7 + line, ""),) for line in continuation),
    ]
    notes = dict.fromkeys(
        escape_controls(result.note) for result in verdict.results if result.status == PASSED and result.note
    )
    if notes:
        call_lines[-1] = (*call_lines[-1], (f"  ({', '.join(notes)})", "quiet"))
    for result in failed:
        for message in dict.fromkeys(_strip_place(message, verdict) for message in _list_messages(result)):
            if not (continuation or [first])[-1].endswith(
                f": {escape_controls(message)}"
            ):  # what came back is the error itself
                call_lines += _build_message(message, " " * 7, _get_style(result.status))
    return call_lines


def _build_missing_call(verdict: CallVerdict, mark: tuple[str, str], failed: list[CheckResult]) -> list[Line]:
    """A call that was not made, or not often enough: what is said of it is its line."""
    messages = dict.fromkeys(message for result in failed for message in _list_messages(result))
    missing_lines = [line for message in messages for line in _build_message(message, " " * 7, "bad")]
    first = (
        missing_lines[0][0][0].strip() if missing_lines else f"{escape_controls(verdict.expected_name)} was not called"
    )
    return [(("   –  ", "quiet"), mark, (first, "")), *missing_lines[1:]]


def _list_messages(result: CheckResult) -> list[str]:
    return [reason.message for reason in result.reasons] or [result.message or result.check]


def _strip_place(message: str, verdict: CallVerdict) -> str:
    """Reasons name the call that they are about; under that call's line this would be said twice."""
    return message.removeprefix(f"call {verdict.call.index + 1}, {verdict.call.name}: ") if verdict.call else message


def _format_call(call: FunctionCall, width: int, breaks_at: int) -> list[str]:
    """The call and what came back, within `width` columns; in two lines where the arguments would have no room."""
    name = escape_controls(call.name)
    how = f" [as {escape_controls(call.requested_name)}]" if call.requested_name else ""
    how += " [written as text]" if call.channel == "text" else ""
    returned = _format_result(call, width)
    room = width - len(name) - 2 - len(how)
    remaining = room - len(returned)
    arguments = format_arguments(call.arguments, remaining if remaining >= _ROOM else room)
    line = f"{name}({arguments}){how}"
    return [line + returned] if len(line) + len(returned) <= min(width, breaks_at) else [line, returned.strip()]


def _format_result(call: FunctionCall, budget: int) -> str:
    if call.outcome == "error":
        error = call.result.get("error") if isinstance(call.result, dict) else call.result
        if isinstance(error, dict) and {"type", "message"} <= error.keys():
            kind, message = escape_controls(str(error["type"])), escape_controls(str(error["message"]))
            return f" → error {kind}: {cut_at_word(message, budget)}"
        return f" → error {format_json(error, budget)}"
    return "" if call.result is None else f" → {format_json(call.result, budget)}"


def _build_message(message: str, indent: str, style: str) -> list[Line]:
    text = escape_lines(message)
    if len(text) > _LONGEST_MESSAGE:
        text = f"{text[:_LONGEST_MESSAGE]}… ({len(message):,} characters; whole in the run file)"
    return [((indent + part, style),) for part in text.split("\n")]


def _build_remarks(verdict: Verdict) -> list[Line]:
    remarks: list[Line] = []
    transcript = verdict.transcript
    if verdict.status == FAILED and (not transcript.calls or any(map(_is_of_response, verdict.reasons))):
        if transcript.response:
            remarks += [(("  the agent answered: ", "quiet"), (format_json(transcript.response, 300), ""))]
        elif not transcript.calls and transcript.input and transcript.fault is None:  # it was asked, and it came back
            remarks += [(("  the agent answered nothing", "quiet"),)]
    if transcript.calls:
        for unused in transcript.unused_mocks:
            remarks += _build_message(unused, "  ", "quiet")
    for warning in dict.fromkeys((*verdict.warnings, *transcript.warnings)):
        remarks += _build_message(f"warning: {warning}", "  ", "quiet")
    location = next((reason.location for reason in verdict.reasons if reason.location), "")
    is_said = any(location in reason.message for reason in verdict.reasons)  # a broken file's problems begin with it
    if verdict.status in (FAILED, ERROR) and location and not is_said:
        remarks += _build_message(f"at {location}", "  ", "quiet")
    return remarks


def _is_of_response(reason: Reason) -> bool:
    return reason.place.rpartition("expected_output.")[2].startswith(("response_", "judge"))


def _build_runs(verdict: Verdict, options: TraceOptions) -> list[Line]:
    """Runs that went the same way are told once; failing ones first."""
    groups: dict[tuple[Line, ...], list[int]] = {}
    for number, run in enumerate(verdict.runs, 1):
        if run.status != PASSED:
            group = tuple(build_trace_lines(_with_case_name(run, verdict), options)[1:])
            groups.setdefault(group, []).append(number)
    run_lines: list[Line] = []
    for group, numbers in list(groups.items())[:_MOST_RUNS]:
        status = verdict.runs[numbers[0] - 1].status
        head = f"{MARKS[status]} run{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}:"
        run_lines += [(("  ", ""), (head, _MARK_STYLES[status]))]
        run_lines += [(("  ", ""), *line) for line in group]
    if len(groups) > _MOST_RUNS:
        run_lines += [((f"  … and {len(groups) - _MOST_RUNS} more ways to fail; see the run file", "quiet"),)]
    if not groups and verdict.runs:
        run_lines += _build_body(replace(verdict.runs[0], warnings=()), options)
    elif not run_lines:
        run_lines += _build_body(replace(verdict, runs=()), options)
    return run_lines


def _with_case_name(run: Verdict, case: Verdict) -> Verdict:
    return replace(run, case_id=case.case_id, description=case.description, case=case.case)
