"""Results of checks and the reasons in them: one grammar of sentences, and the order of the codes."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from evalkit.errors import KeyPath
from evalkit.hooks import find_code
from evalkit.jsonvalue import ARRAY, NUMBER, OBJECT, STRING, get_kind
from evalkit.records.transcript import FunctionCall
from evalkit.records.verdict import ERROR, FAILED, CheckResult, Reason
from evalkit.text.format import cut, format_value

NOT_JUDGED = "not_judged"

# Most specific first: a cause stands before its consequences. Codes of features stand where their entries say; those of
# custom checks come after all of these.
_ORDER = (
    (
        "setup_failed",
        "teardown_failed",
        "provider_error",
        "unread_item",
        "unseen_call",
        "mock_error",
        "mock_bypassed",
        "missing_cassette",
        "stale_cassette",
    ),
    ("agent_raised", "deadline", "crashed", "refused_request"),
    ("stop_reason",),
    ("malformed_call", "unmocked_call", "unknown_function", "invalid_result"),
    ("forbidden_call",),
    ("wrong_argument", "missing_argument", "unexpected_argument"),
    ("text_missing", "text_forbidden", "ungrounded_argument", "unresolved_reference"),
    ("invalid_arguments",),
    ("wrong_outcome", "result_mismatch", "wrong_channel", "wrong_answerer", "wrong_agent", "wrong_user_turn"),
    ("wrong_order", "not_parallel"),
    ("missing_call",),
    ("unexpected_call",),
    ("unobserved",),
    ("wrong_instruction", "response_mismatch"),
    ("budget_exceeded", "score_too_low"),
)
RANK = {code: rank for rank, codes in enumerate(_ORDER) for code in codes}
OTHER_RANK = len(_ORDER)
UNMEASURED = {"not_measured": OTHER_RANK + 1, "check_raised": OTHER_RANK + 1}


def rank(reason: Reason) -> tuple[int, int, int]:
    """Return the sort key of a reason: its code, then its call; reasons of the run come after those of calls."""
    return *rank_code(reason.code), reason.call if reason.call is not None else 1_000_000


def rank_code(code: str) -> tuple[int, int]:
    """Return the rank of a code among the kernel's, and among those of features that rank behind the same one."""
    position = RANK.get(code, UNMEASURED.get(code))
    if position is not None:
        return position, 0
    found = find_code(code)
    if found is None:
        return OTHER_RANK, 0
    return (RANK[found.beside], 0) if found.beside else (RANK.get(found.after, OTHER_RANK), found.number)


def describe_call(call: FunctionCall) -> str:
    """Return ``call 3, send_email``: the call's number in the trace and its name."""
    return f"call {call.index + 1}, {call.name}"


def format_quantity(value: float) -> str:
    """Return a quantity as messages write it: ``12.5``, ``0.003``, ``60000``."""
    return str(int(value)) if value == int(value) else f"{value:.6g}"


def escape_surrogates(text: str) -> str:
    """Escape lone surrogates, which names and messages of agents may hold, so that the text can be encoded."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")


def build_reason(
    code: str,
    message: str,
    place: str,
    *,
    call: FunctionCall | None = None,
    path: KeyPath = (),
    expected: object = None,
    actual: object = None,
) -> Reason:
    """Build the reason for one thing that is wrong with `call`, or with the run."""
    return Reason(
        code=code,
        message=escape_surrogates(_name_call(call) + message),
        place=place,
        call=None if call is None else call.index,
        path=path[:_MAX_STEPS],
        expected=to_json_data(expected),
        actual=to_json_data(actual),
    )


def _name_call(call: FunctionCall | None) -> str:
    return "" if call is None else f"{describe_call(call)}: "


def build_failures(
    check: str, reasons: Iterable[Reason], lines: Iterable[str] | None = None, *, call: FunctionCall | None = None
) -> CheckResult:
    """Build a failed result. Its message is `lines`, by default those of the reasons without the name of `call`, which
    they are shown beside.
    """
    all_reasons = tuple(reasons)
    if lines is None:
        name = escape_surrogates(_name_call(call))
        lines = (reason.message.removeprefix(name) for reason in all_reasons)
    message = "\n".join(map(escape_surrogates, lines))
    return CheckResult(check=check, status=FAILED, message=message, reasons=all_reasons)


def build_failure(
    check: str,
    code: str,
    message: str,
    place: str,
    *,
    call: FunctionCall | None = None,
    path: KeyPath = (),
    expected: object = None,
    actual: object = None,
) -> CheckResult:
    """Build a failed result for one thing that is wrong with `call`, or with the run."""
    reason = build_reason(code, message, place, call=call, path=path, expected=expected, actual=actual)
    return build_failures(check, [reason], call=call)


@lru_cache(maxsize=1024)
def build_pass(check: str, message: str, note: str = "") -> CheckResult:
    """Build a passed result. Most have one of few messages: calls share them."""
    return CheckResult(check=check, message=escape_surrogates(message), note=note)


def build_unmeasured(check: str, message: str, place: str, mode: str, code: str = "not_measured") -> CheckResult:
    """Build the result of a check without its evidence: `error`, or `not_judged` where calls alone are judged."""
    if mode == "judge":
        return CheckResult(check=check, status=NOT_JUDGED, message=escape_surrogates(message))
    reason = build_reason(code, f"{check}: {message}", place)
    return CheckResult(check=check, status=ERROR, message=escape_surrogates(message), reasons=(reason,))


_MAX_NODES = 2_000  # of a value that a reason carries; larger ones are carried as their text
_MAX_CHARACTERS = 4_000  # of a text that a reason carries; the transcript has all of it
_MAX_STEPS = 100  # of a path


class _TooLargeError(Exception):
    pass


def to_json_data(value: object) -> Any:
    """Return `value` as JSON data that any report can encode; whatever is not JSON, too large or cyclic as text."""
    try:
        return _copy(value, [_MAX_NODES])
    except (RecursionError, _TooLargeError):
        return format_value(value)


def _copy(value: Any, budget: list[int]) -> Any:
    budget[0] -= 1
    if budget[0] < 0:
        raise _TooLargeError
    value_kind = get_kind(value)
    if value_kind == STRING:
        return cut(value, _MAX_CHARACTERS)
    if value_kind == OBJECT:
        return {
            key if get_kind(key) == STRING else format_value(key): _copy(item, budget) for key, item in value.items()
        }
    if value_kind == ARRAY:
        return [_copy(item, budget) for item in value]
    if value_kind == NUMBER:
        # NaN and infinities are not JSON, and Python refuses to write longer integers in decimal.
        is_json = value.bit_length() <= 4096 if isinstance(value, int) else value - value == 0
        return value if is_json else format_value(value)
    return value if value_kind else format_value(value)
