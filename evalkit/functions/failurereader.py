"""`$error` read: what the agent sees of a function that fails, and what patched code gets raised."""

from __future__ import annotations

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from evalkit.errors import did_you_mean, shown_path
from evalkit.functions.mockchecks import Place, Surroundings
from evalkit.functions.mocks import Failure
from evalkit.functions.targets import TargetError, check_form, find
from evalkit.operators.shown import shown

KEYS = ("type", "message", "status", "exception", "detail")
_WORD = re.compile(r"[A-Za-z_][\w.-]*")
_RESERVED = ("type", "message", "status")
_EXCEPTION = "requests.exceptions:Timeout"


def read_failure(value: Any, place: Place, around: Surroundings) -> Failure | None:
    """The Failure that `value` (a mapping of `KEYS`, or a bare type such as ``timeout``) asks for."""
    before = len(around.problems)
    if value is None:
        value = {}
    if isinstance(value, str) and _WORD.fullmatch(value):
        value = {"type": value}
    if not isinstance(value, Mapping):
        hint = f"; write {{status: {value}}}" if type(value) is int and 400 <= value <= 599 else ""
        like = "{type: timeout, message: ...}, or a bare type"
        around.wrong(place, f"$error is like {like}; got {shown(value, 60)}{hint}")
        return None
    known = f"; it has {', '.join(KEYS)}"
    for key in value:
        if key not in KEYS:
            message = f"unknown key '{key}' in {shown_path(place.path)}{did_you_mean(key, KEYS) or known}"
            around.wrong(place, message, key, at_key=True)
    status = _status(value.get("status"), place, around)
    exception = _exception(value.get("exception"), place, around)
    kind = _text(value, "type", place, around) or _usual_type(status, exception)
    message = _text(value, "message", place, around) or _usual_message(kind, status, place.name)
    detail = _detail(value.get("detail"), place, around)
    if status is not None:
        detail = {"status": status, **detail}
    if len(around.problems) > before:
        return None
    static = around.compiled({"message": message, "detail": detail}, place)
    around.check_references(static, place)
    return Failure(kind, static.value["message"], static.value["detail"], exception)


def _text(value: Mapping[str, Any], key: str, place: Place, around: Surroundings) -> str:
    text = value.get(key)
    if text is None or (isinstance(text, str) and text):
        return text or ""
    around.wrong(place, f"{key} of $error must be text; got {shown(text, 60)}", key)
    return ""


def _status(value: Any, place: Place, around: Surroundings) -> int | None:
    if value is None or (type(value) is int and 400 <= value <= 599):
        return value
    from evalkit.operators.advice import number_advice

    advice = number_advice(value)
    message = f"status of $error is an HTTP status from 400 to 599; got {shown(value, 60)}{advice and f'; {advice}'}"
    around.wrong(place, message, "status")
    return None


def _exception(value: Any, place: Place, around: Surroundings) -> str | None:
    """The class that patched code gets raised; a bare name is a built-in one."""
    if value is None:
        return None
    target = f"builtins:{value}" if isinstance(value, str) and ":" not in value else value
    try:
        if not around.check_targets:
            return check_form(target, _EXCEPTION)[0]
        cls = find(target, _EXCEPTION).value
        if not (isinstance(cls, type) and issubclass(cls, Exception)):
            raise TargetError(f"'{value}' is no exception class")
        cls("a message")
    except TargetError as error:
        around.wrong(place, f"exception of $error: {error}", "exception")
        return None
    except Exception as error:
        why = f"'{value}' cannot be made of a message alone ({error}); raise it from a $call"
        around.wrong(place, f"exception of $error: {why}", "exception")
        return None
    return str(target)


def _detail(value: Any, place: Place, around: Surroundings) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        around.wrong(place, f"detail of $error is a mapping of more keys; got {shown(value, 60)}", "detail")
        return {}
    taken = [key for key in _RESERVED if key in value]
    if taken:
        around.wrong(place, f"'{taken[0]}' belongs beside 'detail', not in it", "detail", taken[0], at_key=True)
    return dict(value)


def _usual_type(status: int | None, exception: str | None) -> str:
    if exception:
        return exception.rpartition(":")[2].rpartition(".")[2]
    return "http_error" if status else "error"


def _usual_message(kind: str, status: int | None, name: str) -> str:
    if status:
        return f"{status} {HTTPStatus(status).phrase}" if status in set(HTTPStatus) else f"HTTP status {status}"
    return f"{name} timed out" if kind == "timeout" else f"{name} failed"
