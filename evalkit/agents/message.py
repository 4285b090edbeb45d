"""A case's input as the agent may see it, and as the text of a user's message."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

# What belongs to the test and not to the world that the agent lives in: the answers, and what the user will say next.
HIDDEN_KEYS = frozenset({"mock_function_responses", "mock_responses", "turns"})


def copy_visible_input(data: Mapping[str, Any]) -> dict[str, Any]:
    """A private copy of a case's `input` without the mocks: what an agent changes in it, no other run sees."""
    return {key: _copy(value) for key, value in data.items() if key not in HIDDEN_KEYS}


def _copy(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _copy(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_copy(item) for item in value]
    return value


def format_message(user: Any) -> str:
    """What the user says, as text: a string as it is, an email with its headers, other data as JSON."""
    if user is None:
        return ""
    if isinstance(user, str):
        return user
    if not isinstance(user, Mapping):
        return json.dumps(user, ensure_ascii=False, default=str)
    if isinstance(user.get("message"), str) and len(user) == 1:
        return str(user["message"])
    if isinstance(user.get("email"), Mapping) and len(user) == 1:
        return _format_email(user["email"])
    if "body" in user and {"subject", "from"} & set(user):
        return _format_email(user)
    return _format_mixed(user)


def _format_mixed(user: Mapping[str, Any]) -> str:
    rest = {key: value for key, value in user.items() if key not in ("message", "email")}
    parts = [
        format_message({key: user[key]}) for key in ("message", "email") if key in user and _is_plain(key, user[key])
    ]
    structured = {key: value for key, value in user.items() if key not in rest and not _is_plain(key, value)}
    data = json.dumps({**structured, **rest}, ensure_ascii=False, default=str, indent=2) if structured or rest else ""
    return "\n\n".join([*parts, *([data] if data else [])])


def _is_plain(key: str, value: Any) -> bool:
    return isinstance(value, str if key == "message" else Mapping)


def _format_email(email: Mapping[str, Any]) -> str:
    headers = [f"{key.capitalize()}: {value}" for key, value in email.items() if key != "body" and value is not None]
    return "\n".join([*headers, "", str(email.get("body", "") or "")])
