"""Building results and reasons: one grammar for what is said of a call and of the run, and codes in their order."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

from evalkit.errors import format_path
from evalkit.jsonvalue import ARRAY, NUMBER, OBJECT, STRING, get_kind
from evalkit.model.transcript import FunctionCall
from evalkit.model.verdict import ERROR, FAILED, CheckResult, Reason
from evalkit.text.format import format_value

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
OTHER_RANK = len(_ORDER)  # codes of custom checks
UNMEASURED = {"not_measured": OTHER_RANK + 1, "check_raised": OTHER_RANK + 1}


def rank(reason: Reason) -> tuple[int, int]:
    """Where a reason stands among others: by its code, then by the call it is about, the run's own last."""
    at = RANK.get(reason.code)
    if at is None:
        at = UNMEASURED.get(reason.code, OTHER_RANK)
    return at, reason.call if reason.call is not None else 1_000_000


def describe_call(call: FunctionCall) -> str:
    """``call 3, send_email``: a call as reasons name it, numbered as in the trace."""
    return f"call {call.index + 1}, {call.name}"


def escape_surrogates(text: str) -> str:
    """`text` in a form that can always be encoded: names and messages of agents may hold lone surrogates."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")


def build_run_reason(
    code: str, message: str, place: str, *, path: tuple[str | int, ...] = (), expected: Any = None, actual: Any = None
) -> Reason:
    """One thing that is wrong with the run."""
    return _build_reason(code, message, place, None, path, expected, actual)


def build_call_reason(
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
    return _build_reason(code, f"{describe_call(call)}: {message}", place, call.index, path, expected, actual)


def _build_reason(
    code: str, message: str, place: str, call: int | None, path: tuple[str | int, ...], expected: Any, actual: Any
) -> Reason:
    return Reason(
        code=code,
        message=escape_surrogates(message),
        place=place,
        call=call,
        path=path[:_STEPS],
        expected=to_json_data(expected),
        actual=to_json_data(actual),
    )


def build_failure(check: str, reasons: Iterable[Reason], lines: Iterable[str] | None = None) -> CheckResult:
    """A check that failed. Its message is `lines`, where the place that it is shown at says what they are about."""
    all_reasons = tuple(reasons)
    message = "\n".join([reason.message for reason in all_reasons] if lines is None else map(escape_surrogates, lines))
    return CheckResult(check=check, status=FAILED, message=message, reasons=all_reasons)


def build_call_failure(
    check: str, code: str, message: str, call: FunctionCall, place: str, **detail: Any
) -> CheckResult:
    """A check that found one thing wrong with `call`."""
    return build_failure(check, [build_call_reason(code, message, call, place, **detail)], [message])


def build_run_failure(
    check: str, code: str, message: str, place: str, *, expected: Any = None, actual: Any = None
) -> CheckResult:
    """A check that found one thing wrong with the run."""
    return build_failure(check, [build_run_reason(code, message, place, expected=expected, actual=actual)])


@cache
def build_pass(key: str, message: str, note: str = "") -> CheckResult:
    """A result that passed, in words that are few: one object serves all calls."""
    return CheckResult(check=key, message=message, note=note)


def build_detailed_pass(key: str, message: str) -> CheckResult:
    """A result that passed, in words that hold what was found."""
    return CheckResult(check=key, message=escape_surrogates(message))


def build_unmeasured(check: str, message: str, place: str, mode: str, code: str = "not_measured") -> CheckResult:
    """A check without its evidence: `error` in a run, `not_judged` (decides nothing) where calls alone are judged."""
    if mode == "judge":
        return CheckResult(check=check, status=NOT_JUDGED, message=escape_surrogates(message))
    reason = build_run_reason(code, f"{check}: {message}", place)
    return CheckResult(check=check, status=ERROR, message=escape_surrogates(message), reasons=(reason,))


def format_place(path: tuple[str | int, ...]) -> str:
    """A path in the case as a reason's place."""
    return format_path(path)


_NODES = 2_000  # of a value that a reason carries; what is larger is carried as its shown text
_CHARACTERS = 4_000  # of a text that a reason carries; the transcript holds it whole
_STEPS = 100  # of a path


def to_json_data(value: Any) -> Any:
    """`value` as JSON data that any report can encode; what is not JSON, too large or cyclic becomes its shown text."""
    try:
        return _copy(value, [_NODES])
    except (RecursionError, _TooLargeError):
        return format_value(value)


class _TooLargeError(Exception):
    pass


def _copy(value: Any, budget: list[int]) -> Any:
    budget[0] -= 1
    if budget[0] < 0:
        raise _TooLargeError
    value_kind = get_kind(value)
    if value_kind == STRING:
        return value if len(value) <= _CHARACTERS else f"{value[:_CHARACTERS]}…"
    if value_kind == OBJECT:
        return {
            key if get_kind(key) == STRING else format_value(key): _copy(item, budget) for key, item in value.items()
        }
    if value_kind == ARRAY:
        return [_copy(item, budget) for item in value]
    if not value_kind or (value_kind == NUMBER and not _can_write(value)):
        return format_value(value)
    return value


def _can_write(number: float) -> bool:
    if isinstance(number, int):
        return number.bit_length() <= 4096  # Python refuses to write longer ones in decimal
    return number - number == 0  # NaN and infinities are not JSON
