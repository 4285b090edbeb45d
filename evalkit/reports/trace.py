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
from evalkit.reports.conversation import conversation, user_turns
from evalkit.reports.faults import fault_lines, reasons_told
from evalkit.reports.hostile import encodable, visible, visible_lines
from evalkit.reports.spans import Line, line_text
from evalkit.reports.values import arguments_text, shortened, value_text

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


def render(verdict: Verdict, options: TraceOptions | None = None) -> str:
    """The trace as plain text, lines joined by line feeds, without a trailing one."""
    options = options or TraceOptions()
    return encodable("\n".join(line_text(line) for line in lines(verdict, options)), options.encoding)


def paint(shown: Iterable[Line], encoding: str | None = None) -> str:
    """Lines as text with ANSI colours, for a terminal."""
    from io import StringIO

    from rich.console import Console
    from rich.text import Text

    out = StringIO()
    console = Console(file=out, force_terminal=True, color_system="standard", width=10_000, legacy_windows=False)
    for line in shown:
        spans = [(encodable(text, encoding), _STYLES[style]) for text, style in line]
        console.print(Text.assemble(*spans), soft_wrap=True)
    return out.getvalue().rstrip("\n")


def lines(verdict: Verdict, options: TraceOptions) -> list[Line]:
    """The trace, line by line: the header, the calls with what is wrong at each, what is wrong beside them."""
    shown = [_header(verdict, min(options.width, _WIDEST))]
    if verdict.runs:
        shown += _runs(verdict, options)
    else:
        shown += _body(verdict, options)
    return shown + fault_lines(verdict)


def _header(verdict: Verdict, width: int) -> Line:
    name = visible(PurePosixPath(verdict.case_id).stem or "case")
    mark = (f"{MARKS[verdict.status]} ", _MARK_STYLES[verdict.status])
    facts = " · ".join(_facts(verdict))
    room = width - len(name) - len(facts) - 6
    description = (
        shortened(" ".join(visible(verdict.description, keep="\n").split()), max(room, 0)) if room >= 12 else ""
    )
    if not facts:
        return (mark, (name, "name"), (f"  {description}" if description else "", ""))
    used = 2 + len(name) + (2 + len(description) if description else 0)
    gap = " " * max(width - used - len(facts), 2)
    return (mark, (name, "name"), (f"  {description}" if description else "", ""), (gap + facts, "quiet"))


def _facts(verdict: Verdict) -> Iterator[str]:
    if verdict.runs:
        passed = sum(run.status == PASSED for run in verdict.runs)
        planned = f" of {verdict.runs_planned}" if len(verdict.runs) < verdict.runs_planned else ""  # settled early
        yield f"{passed} of {len(verdict.runs)} runs passed, {verdict.min_pass}{planned} wanted"
        return
    if verdict.status == NOT_RUN or (verdict.status == ERROR and not verdict.transcript.calls):
        return
    transcript = verdict.transcript
    yield _counted(len(transcript.calls), "call")
    if transcript.turns:
        yield _counted(len(transcript.turns), "turn")
    if transcript.timing is not None and transcript.timing.elapsed_ms >= 1:
        yield duration_text(transcript.timing.elapsed_ms)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def duration_text(milliseconds: float) -> str:
    """``80 ms``, ``0.8 s``, ``12 s``, ``2 min 5 s``."""
    seconds = milliseconds / 1000
    if seconds < 0.1:
        return f"{milliseconds:.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{int(seconds // 60)} min {int(seconds % 60)} s"


def _body(verdict: Verdict, options: TraceOptions) -> list[Line]:
    shown: list[Line] = []
    told: set[tuple[str, str, int | None]] = set()
    for call in verdict.calls:
        shown += _call(call, told, options)
    if options.conversation:
        shown += conversation(verdict.transcript, user_turns(verdict.case))
    told |= reasons_told(verdict)
    graded: list[Line] = []
    if verdict.transcript.gradings:
        from evalkit.reports.graded import graded_lines, reasons_graded

        graded = graded_lines(verdict)
        told |= reasons_graded(verdict)
    beside = [reason for reason in verdict.reasons if _key(reason) not in told]
    fault = verdict.transcript.fault
    if fault is not None and beside and beside[0].code == fault.code:  # it raised, it ran into its deadline
        shown[:0] = _message(beside.pop(0).message, "  ", _style(verdict.status))
    for reason in dict.fromkeys(map(_key, beside)):
        shown += _message(reason[1] or reason[0], "  ", _style(verdict.status))
    shown += [*graded, *_remarks(verdict)]
    return shown


def _style(status: str) -> str:
    return "bad" if status == FAILED else "error"


def _key(reason: Reason) -> tuple[str, str, int | None]:
    return (reason.code, reason.message, reason.call)


def _call(verdict: CallVerdict, told: set[tuple[str, str, int | None]], options: TraceOptions) -> list[Line]:
    mark = (f"{MARKS[verdict.status]} ", _MARK_STYLES[verdict.status])
    failed = [result for result in verdict.results if result.status != PASSED]
    told.update(_key(reason) for result in failed for reason in result.reasons)
    if verdict.call is None:
        return _missing(verdict, mark, failed)
    width = max(options.width, _NARROWEST)
    first, *more = _called(verdict.call, width - 7, (options.breaks_at or width) - 7)
    number = f"{verdict.call.index + 1:>3}. "  # as messages name the call, whatever was not called before it
    shown: list[Line] = [((number, "quiet"), mark, (first, "")), *(((" " * 7 + line, ""),) for line in more)]
    notes = dict.fromkeys(visible(result.note) for result in verdict.results if result.status == PASSED and result.note)
    if notes:
        shown[-1] = (*shown[-1], (f"  ({', '.join(notes)})", "quiet"))
    for result in failed:
        for message in dict.fromkeys(_without_place(message, verdict) for message in _said(result)):
            if not (more or [first])[-1].endswith(f": {visible(message)}"):  # what came back is the error itself
                shown += _message(message, " " * 7, _style(result.status))
    return shown


def _missing(verdict: CallVerdict, mark: tuple[str, str], failed: list[CheckResult]) -> list[Line]:
    """A call that was not made, or not often enough: what is said of it is its line."""
    said = dict.fromkeys(message for result in failed for message in _said(result))
    shown = [line for message in said for line in _message(message, " " * 7, "bad")]
    first = shown[0][0][0].strip() if shown else f"{visible(verdict.expected_name)} was not called"
    return [(("   –  ", "quiet"), mark, (first, "")), *shown[1:]]


def _said(result: CheckResult) -> list[str]:
    return [reason.message for reason in result.reasons] or [result.message or result.check]


def _without_place(message: str, verdict: CallVerdict) -> str:
    """Reasons name the call that they are about; under that call's line this would be said twice."""
    return message.removeprefix(f"call {verdict.call.index + 1}, {verdict.call.name}: ") if verdict.call else message


def _called(call: FunctionCall, width: int, breaks_at: int) -> list[str]:
    """The call and what came back, within `width` columns; in two lines where the arguments would have no room."""
    name = visible(call.name)
    how = f" [as {visible(call.requested_name)}]" if call.requested_name else ""
    how += " [written as text]" if call.channel == "text" else ""
    returned = _returned(call, width)
    room = width - len(name) - 2 - len(how)
    beside = room - len(returned)
    given = arguments_text(call.arguments, beside if beside >= _ROOM else room)
    line = f"{name}({given}){how}"
    return [line + returned] if len(line) + len(returned) <= min(width, breaks_at) else [line, returned.strip()]


def _returned(call: FunctionCall, budget: int) -> str:
    if call.outcome == "error":
        error = call.result.get("error") if isinstance(call.result, dict) else call.result
        if isinstance(error, dict) and {"type", "message"} <= error.keys():
            kind, message = visible(str(error["type"])), visible(str(error["message"]))
            return f" → error {kind}: {shortened(message, budget)}"
        return f" → error {value_text(error, budget)}"
    return "" if call.result is None else f" → {value_text(call.result, budget)}"


def _message(message: str, indent: str, style: str) -> list[Line]:
    text = visible_lines(message)
    if len(text) > _LONGEST_MESSAGE:
        text = f"{text[:_LONGEST_MESSAGE]}… ({len(message):,} characters; whole in the run file)"
    return [((indent + part, style),) for part in text.split("\n")]


def _remarks(verdict: Verdict) -> list[Line]:
    shown: list[Line] = []
    transcript = verdict.transcript
    if verdict.status == FAILED and (not transcript.calls or any(map(_is_of_response, verdict.reasons))):
        if transcript.response:
            shown += [(("  the agent answered: ", "quiet"), (value_text(transcript.response, 300), ""))]
        elif not transcript.calls and transcript.input and transcript.fault is None:  # it was asked, and it came back
            shown += [(("  the agent answered nothing", "quiet"),)]
    if transcript.calls:
        for unused in transcript.unused_mocks:
            shown += _message(unused, "  ", "quiet")
    for warning in dict.fromkeys((*verdict.warnings, *transcript.warnings)):
        shown += _message(f"warning: {warning}", "  ", "quiet")
    location = next((reason.location for reason in verdict.reasons if reason.location), "")
    is_said = any(location in reason.message for reason in verdict.reasons)  # a broken file's problems begin with it
    if verdict.status in (FAILED, ERROR) and location and not is_said:
        shown += _message(f"at {location}", "  ", "quiet")
    return shown


def _is_of_response(reason: Reason) -> bool:
    return reason.place.rpartition("expected_output.")[2].startswith(("response_", "judge"))


def _runs(verdict: Verdict, options: TraceOptions) -> list[Line]:
    """Runs that went the same way are told once; failing ones first."""
    groups: dict[tuple[Line, ...], list[int]] = {}
    for number, run in enumerate(verdict.runs, 1):
        if run.status != PASSED:
            told = tuple(lines(_named(run, verdict), options)[1:])
            groups.setdefault(told, []).append(number)
    shown: list[Line] = []
    for told, numbers in list(groups.items())[:_MOST_RUNS]:
        status = verdict.runs[numbers[0] - 1].status
        head = f"{MARKS[status]} run{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}:"
        shown += [(("  ", ""), (head, _MARK_STYLES[status]))]
        shown += [(("  ", ""), *line) for line in told]
    if len(groups) > _MOST_RUNS:
        shown += [((f"  … and {len(groups) - _MOST_RUNS} more ways to fail; see the run file", "quiet"),)]
    if not groups and verdict.runs:
        shown += _body(replace(verdict.runs[0], warnings=()), options)
    elif not shown:
        shown += _body(replace(verdict, runs=()), options)
    return shown


def _named(run: Verdict, case: Verdict) -> Verdict:
    return replace(run, case_id=case.case_id, description=case.description, case=case.case)
