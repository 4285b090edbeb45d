"""What an agent in another process gets and gives: one JSON object each (docs/ways-in.md).

The reply is one JSON object with `text`, or plain text. An agent's mistakes show in its calls and its answer. One that
breaks the protocol (it exits with another status than 0, answers with an HTTP error, prints half a JSON, or far too
much) could not be measured, unless a function of the case had failed before: breaking down over that is the agent's own
fault.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from evalkit.agents.contract import COMPLETED, Reply
from evalkit.agents.remote.server import FunctionUrls
from evalkit.agents.task import Task
from evalkit.errors import RemoteAgentError
from evalkit.features.programs.spans import PATH as SPANS_PATH
from evalkit.fields.reader import describe_unknown_key
from evalkit.jsonvalue import JsonObject
from evalkit.records.settings import REQUEST_SETTINGS
from evalkit.records.transcript import USAGE_KEYS, Usage
from evalkit.text.format import cut_between_words

PROTOCOL = 1
_KINDS: Mapping[str, tuple[type, str]] = {
    "text": (str, "a text"),
    "stop_reason": (str, "a text"),
    "instruction_used": (str, "a text"),
    "usage": (dict, "an object"),
    "data": (dict, "an object"),
    "state": (dict, "an object"),
}
REPLY_KEYS = tuple(_KINDS)
REPLY_FORM = 'a reply is one JSON object such as {"text": "..."}, or plain text'


def build_request(task: Task, served: FunctionUrls, *, is_traced: bool = False) -> bytes:
    """Build the request, as JSON in UTF-8. `is_traced`: the agent is to export its spans."""
    settings = task.settings
    request = {
        "protocol": PROTOCOL,
        "case_id": task.case_id,
        "run": task.run_index,
        "input": task.input,
        "message": task.message,
        "messages": [
            {
                "role": message.get("role"),
                "text": message["turn"].text if message.get("role") == "model" else message.get("text", ""),
            }
            for message in task.messages
        ],
        "state": task.state,
        "model": task.model,
        "settings": {
            **{name: getattr(settings, name) for name in REQUEST_SETTINGS},
            "deadline_s": settings.deadline_s,
            "max_iterations": settings.max_iterations,
        },
        **({"variant": dict(task.variant)} if task.variant else {}),
        **({"parts": [part.describe() | {"path": part.path} for part in task.parts]} if task.parts else {}),
        "functions": task.describe_functions(),
        "functions_url": served.functions_url,
        **{f"{name}_url": url for name, url in served.urls.items()},
        **({"otlp_endpoint": f"{served.functions_url}/{SPANS_PATH}"} if is_traced else {}),
        **{f"{name}_command": command for name, command in served.commands.items()},
    }
    return json.dumps(request, ensure_ascii=True, default=str).encode("ascii")


def read_reply(content: bytes, label: str, task: Task) -> Reply:
    """Read the reply in `content`. Raises RemoteAgentError, code ``invalid_reply``, whose text begins with `label`, if
    it can't be read.
    """
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _make_invalid_reply_error(
            label, f"answered with something that is not UTF-8 (byte {error.start}); {REPLY_FORM}"
        ) from None
    stripped = text.strip()
    if not stripped.startswith("{"):
        _refuse_reply_after_logs(stripped, label)
        return Reply(text.rstrip("\r\n"))
    try:
        data = json.loads(stripped)
    except (ValueError, RecursionError) as error:
        raise _make_invalid_reply_error(
            label, f"answered with something that begins like JSON, but is not: {error}; {REPLY_FORM}"
        ) from None
    problems = _find_problems(data)
    if problems:
        raise _make_invalid_reply_error(label, f"answered with a JSON object that is no reply: {'; '.join(problems)}")
    if data.get("state") is not None:
        task.state.clear()
        task.state.update(data["state"])
    return Reply(
        data.get("text") or "",
        stop_reason=data.get("stop_reason") or COMPLETED,
        instruction_used=data.get("instruction_used"),
        usage=Usage(**data["usage"]) if data.get("usage") else None,
        data=data.get("data"),
    )


def _refuse_reply_after_logs(text: str, label: str) -> None:
    """Refuse a JSON reply below other lines: read as plain text, its stop reason would be lost without notice."""
    lines = text.splitlines()
    if not lines or not lines[-1].startswith("{"):
        return
    try:
        is_reply = "text" in json.loads(lines[-1])
    except (ValueError, RecursionError):
        return
    if is_reply:
        before = "a line" if len(lines) == 2 else f"{len(lines) - 1} lines"
        raise _make_invalid_reply_error(
            label, f"wrote {before} above its JSON reply; logs belong on stderr, stdout holds the reply alone"
        )


def _find_problems(data: JsonObject) -> list[str]:
    problems = [describe_unknown_key(key, known_keys=REPLY_KEYS) for key in data if key not in REPLY_KEYS]
    if "text" not in data and not problems:
        problems.append("it has no 'text'")
    for key, (kind, description) in _KINDS.items():
        if data.get(key) is not None and not isinstance(data[key], kind):
            problems += [f"'{key}' is {description}, got {_format_value(data[key])}"]
    usage = data.get("usage")
    for key, value in usage.items() if isinstance(usage, dict) else ():
        if key not in USAGE_KEYS:
            problems.append(describe_unknown_key(key, "usage", USAGE_KEYS))
        elif isinstance(value, bool) or not isinstance(value, int) or value < 0:
            problems.append(f"'usage.{key}' is a number of tokens, got {_format_value(value)}")
    return problems


def _format_value(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return cut_between_words(text)


def _make_invalid_reply_error(label: str, problem: str) -> RemoteAgentError:
    return RemoteAgentError(f"{label} {problem}", code="invalid_reply")


def mark_own_fault(error: RemoteAgentError, task: Task) -> RemoteAgentError:
    """`error`, as the agent's own fault if a function had failed or was refused before."""
    failed = next((call for call in task.calls if call.outcome == "error"), None)
    if failed is None:
        return error
    message = f"{error}\nbefore, call {failed.index + 1}, {failed.name}, had failed: an agent must cope with that"
    return RemoteAgentError(message, code=error.code, is_agent_fault=True)
