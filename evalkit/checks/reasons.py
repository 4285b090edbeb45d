"""Building results and reasons: one grammar for what is said of a call and of the run, and codes in their order."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

from evalkit.errors import shown_path
from evalkit.model.transcript import FunctionCall
from evalkit.model.verdict import ERROR, FAILED, CheckResult, Reason
from evalkit.operators.equality import ARRAY, NUMBER, OBJECT, STRING, kind
from evalkit.operators.shown import shown

NOT_JUDGED = "not_judged"

# Most specific first: what explains the others stands before them. Codes that are not listed come last but two.
_ORDER = (
    ("setup_failed", "teardown_failed", "provider_error", "mock_error", "missing_cassette", "stale_cassette"),
    ("agent_raised", "deadline", "crashed"),
    ("stop_reason",),
    ("malformed_call", "unmocked_call", "unknown_function"),
    ("forbidden_call",),
    ("wrong_argument", "missing_argument", "unexpected_argument"),
    ("text_missing", "text_forbidden", "ungrounded_argument", "unresolved_reference"),
    ("invalid_arguments",),
    ("wrong_outcome", "result_mismatch", "wrong_channel"),
    ("wrong_order", "not_parallel"),
    ("missing_call",),
    ("unexpected_call",),
    ("wrong_instruction", "response_mismatch"),
    ("budget_exceeded", "score_too_low"),
    ("judge_failed",),
)
RANK = {code: rank for rank, codes in enumerate(_ORDER) for code in codes}
OTHER = len(_ORDER)  # codes of custom checks
UNMEASURED = {"not_measured": OTHER + 1, "check_raised": OTHER + 1}


def rank(reason: Reason) -> tuple[int, int]:
    """Where a reason stands among others: by its code, then by the call it is about, the run's own last."""
    at = RANK.get(reason.code)
    if at is None:
        at = UNMEASURED.get(reason.code, OTHER)
    return at, reason.call if reason.call is not None else 1_000_000


def about(call: FunctionCall) -> str:
    """``call 3, send_email``: a call as reasons name it, numbered as in the trace."""
    return f"call {call.index + 1}, {call.name}"


def readable(text: str) -> str:
    """`text` in a form that can always be encoded: names and messages of agents may hold lone surrogates."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")


def run_reason(
    code: str, message: str, place: str, *, path: tuple[str | int, ...] = (), expected: Any = None, actual: Any = None
) -> Reason:
    """One thing that is wrong with the run."""
    return _reason(code, message, place, None, path, expected, actual)


def call_reason(
    code: str,
    message: str,
    call: FunctionCall,
    place: str,
    *,
    path: tuple[str | int, ...] = (),
    expected: Any = None,
    actual: Any = None,
) -> Reason:
    """One thing that is wrong with `call`."""
    return _reason(code, f"{about(call)}: {message}", place, call.index, path, expected, actual)


def _reason(
    code: str, message: str, place: str, call: int | None, path: tuple[str | int, ...], expected: Any, actual: Any
) -> Reason:
    return Reason(
        code=code,
        message=readable(message),
        place=place,
        call=call,
        path=path[:_STEPS],
        expected=json_data(expected),
        actual=json_data(actual),
    )


def failing(check: str, reasons: Iterable[Reason], lines: Iterable[str] | None = None) -> CheckResult:
    """A check that failed. Its message is `lines`, where the place that it is shown at says what they are about."""
    found = tuple(reasons)
    told = "\n".join([reason.message for reason in found] if lines is None else map(readable, lines))
    return CheckResult(check=check, status=FAILED, message=told, reasons=found)


def failed_call(check: str, code: str, message: str, call: FunctionCall, place: str, **detail: Any) -> CheckResult:
    """A check that found one thing wrong with `call`."""
    return failing(check, [call_reason(code, message, call, place, **detail)], [message])


def failed(check: str, code: str, message: str, place: str, *, expected: Any = None, actual: Any = None) -> CheckResult:
    """A check that found one thing wrong with the run."""
    return failing(check, [run_reason(code, message, place, expected=expected, actual=actual)])


@cache
def passing(key: str, message: str, note: str = "") -> CheckResult:
    """A result that passed, in words that are few: one object serves all calls."""
    return CheckResult(check=key, message=message, note=note)


def passed(key: str, message: str) -> CheckResult:
    """A result that passed, in words that hold what was found."""
    return CheckResult(check=key, message=readable(message))


def unmeasured(check: str, message: str, place: str, mode: str, code: str = "not_measured") -> CheckResult:
    """A check without its evidence: `error` in a run, `not_judged` (decides nothing) where calls alone are judged."""
    if mode == "judge":
        return CheckResult(check=check, status=NOT_JUDGED, message=readable(message))
    reason = run_reason(code, f"{check}: {message}", place)
    return CheckResult(check=check, status=ERROR, message=readable(message), reasons=(reason,))


def place_of(path: tuple[str | int, ...]) -> str:
    """A path in the case as a reason's place."""
    return shown_path(path)


_NODES = 2_000  # of a value that a reason carries; what is larger is carried as its shown text
_CHARACTERS = 4_000  # of a text that a reason carries; the transcript holds it whole
_STEPS = 100  # of a path


def json_data(value: Any) -> Any:
    """`value` as JSON data that any report can encode; what is not JSON, too large or cyclic becomes its shown text."""
    try:
        return _copied(value, [_NODES])
    except (RecursionError, _TooLargeError):
        return shown(value)


class _TooLargeError(Exception):
    pass


def _copied(value: Any, left: list[int]) -> Any:
    left[0] -= 1
    if left[0] < 0:
        raise _TooLargeError
    of_kind = kind(value)
    if of_kind == STRING:
        return value if len(value) <= _CHARACTERS else f"{value[:_CHARACTERS]}…"
    if of_kind == OBJECT:
        return {key if kind(key) == STRING else shown(key): _copied(item, left) for key, item in value.items()}
    if of_kind == ARRAY:
        return [_copied(item, left) for item in value]
    if not of_kind or (of_kind == NUMBER and not _writable(value)):
        return shown(value)
    return value


def _writable(number: float) -> bool:
    if isinstance(number, int):
        return number.bit_length() <= 4096  # Python refuses to write longer ones in decimal
    return number - number == 0  # NaN and infinities are not JSON
