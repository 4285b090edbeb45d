"""`$error` read: what the agent sees of a function that fails, and what patched code gets raised."""

from __future__ import annotations

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from evalkit.errors import did_you_mean, format_path
from evalkit.functions.mockchecks import MockContext, MockPlace
from evalkit.functions.mocks import FailureAnswer
from evalkit.functions.targets import TargetError, check_form, find_object
from evalkit.operators.shown import format_value

FAILURE_KEYS = ("type", "message", "status", "exception", "detail")
_TYPE_NAME = re.compile(r"[A-Za-z_][\w.-]*")
_RESERVED_KEYS = ("type", "message", "status")
_EXCEPTION_EXAMPLE = "requests.exceptions:Timeout"


def read_failure(value: Any, place: MockPlace, context: MockContext) -> FailureAnswer | None:
    """The Failure that `value` (a mapping of `KEYS`, or a bare type such as ``timeout``) asks for."""
    before = len(context.problems)
    if value is None:
        value = {}
    if isinstance(value, str) and _TYPE_NAME.fullmatch(value):
        value = {"type": value}
    if not isinstance(value, Mapping):
        hint = f"; write {{status: {value}}}" if type(value) is int and 400 <= value <= 599 else ""
        like = "{type: timeout, message: ...}, or a bare type"
        context.add_problem(place, f"$error is like {like}; got {format_value(value, 60)}{hint}")
        return None
    keys_hint = f"; it has {', '.join(FAILURE_KEYS)}"
    for key in value:
        if key not in FAILURE_KEYS:
            message = f"unknown key '{key}' in {format_path(place.path)}{did_you_mean(key, FAILURE_KEYS) or keys_hint}"
            context.add_problem(place, message, key, at_key=True)
    status = _read_status(value.get("status"), place, context)
    exception = _read_exception(value.get("exception"), place, context)
    kind = _read_text(value, "type", place, context) or _get_default_type(status, exception)
    message = _read_text(value, "message", place, context) or _get_default_message(kind, status, place.name)
    detail = _read_detail(value.get("detail"), place, context)
    if status is not None:
        detail = {"status": status, **detail}
    if len(context.problems) > before:
        return None
    static = context.compile_answer({"message": message, "detail": detail}, place)
    context.check_references(static, place)
    return FailureAnswer(kind, static.value["message"], static.value["detail"], exception)


def _read_text(value: Mapping[str, Any], key: str, place: MockPlace, context: MockContext) -> str:
    text = value.get(key)
    if text is None or (isinstance(text, str) and text):
        return text or ""
    context.add_problem(place, f"{key} of $error must be text; got {format_value(text, 60)}", key)
    return ""


def _read_status(value: Any, place: MockPlace, context: MockContext) -> int | None:
    if value is None or (type(value) is int and 400 <= value <= 599):
        return value
    from evalkit.operators.advice import suggest_number

    advice = suggest_number(value)
    message = (
        f"status of $error is an HTTP status from 400 to 599; got {format_value(value, 60)}{advice and f'; {advice}'}"
    )
    context.add_problem(place, message, "status")
    return None


def _read_exception(value: Any, place: MockPlace, context: MockContext) -> str | None:
    """The class that patched code gets raised; a bare name is a built-in one."""
    if value is None:
        return None
    target = f"builtins:{value}" if isinstance(value, str) and ":" not in value else value
    try:
        if not context.check_targets:
            return check_form(target, _EXCEPTION_EXAMPLE)[0]
        cls = find_object(target, _EXCEPTION_EXAMPLE).value
        if not (isinstance(cls, type) and issubclass(cls, Exception)):
            raise TargetError(f"'{value}' is no exception class")
        cls("a message")
    except TargetError as error:
        context.add_problem(place, f"exception of $error: {error}", "exception")
        return None
    except Exception as error:
        reason = f"'{value}' cannot be made of a message alone ({error}); raise it from a $call"
        context.add_problem(place, f"exception of $error: {reason}", "exception")
        return None
    return str(target)


def _read_detail(value: Any, place: MockPlace, context: MockContext) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        context.add_problem(
            place, f"detail of $error is a mapping of more keys; got {format_value(value, 60)}", "detail"
        )
        return {}
    reserved = [key for key in _RESERVED_KEYS if key in value]
    if reserved:
        context.add_problem(
            place, f"'{reserved[0]}' belongs beside 'detail', not in it", "detail", reserved[0], at_key=True
        )
    return dict(value)


def _get_default_type(status: int | None, exception: str | None) -> str:
    if exception:
        return exception.rpartition(":")[2].rpartition(".")[2]
    return "http_error" if status else "error"


def _get_default_message(kind: str, status: int | None, name: str) -> str:
    if status:
        return f"{status} {HTTPStatus(status).phrase}" if status in set(HTTPStatus) else f"HTTP status {status}"
    return f"{name} timed out" if kind == "timeout" else f"{name} failed"
