"""What `agent:` may say beside a name: the mapping of an agent that is a command or lives behind a URL."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from evalkit.errors import KeyPath
from evalkit.fields.reader import explain_quoting
from evalkit.spec.value_readers import CaseReader, read_positive

FORMS = "a name, package.module:attribute, an instruction file (.md), or a mapping with 'command' or 'url'"
_HEADER = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_URL = r"https?://(\[[0-9A-Fa-f:.]+\]|[^/?#\s:@\[\]]+)(:(?P<port>[0-9]{1,5}))?([/?#]\S*)?"
_ANY_URL = "http://127.0.0.1:8000/answer"


class AgentKey(NamedTuple):
    """One key of the mapping: ``read(reader, path, value)``, the schema of its value, one sentence."""

    read: Callable[[CaseReader, KeyPath, Any], object]
    schema: Mapping[str, Any]
    doc: str


def read_agent_mapping(reader: CaseReader, path: KeyPath, value: Any) -> Any:
    """The mapping, without the keys that are null."""
    if not isinstance(value, dict):
        reader.report_wrong(path, value, FORMS)
        return None
    entries = {key: item for key, item in value.items() if item is not None}
    if "command" in entries and "url" in entries:
        advice = "; a case adds to its suite's agent: 'command: null' or 'url: null' takes one away"
        reader.add_problem(path, f"agent has one of 'command' and 'url'{advice}")
        return None
    rows = URL_KEYS if "url" in entries else COMMAND_KEYS if "command" in entries else {**COMMAND_KEYS, **URL_KEYS}
    for key, item in entries.items():
        if key in rows:
            rows[key].read(reader, (*path, key), item)
        else:
            reader.report_unknown_key(path, key, rows, _build_hint(key, rows))
    if "command" not in entries and "url" not in entries and all(key in rows for key in entries):
        reader.add_problem(path, "agent has neither 'command' nor 'url': what is to be run, or asked")
    return entries


def _build_hint(key: object, rows: Mapping[str, AgentKey]) -> str:
    if key in COMMAND_KEYS or key in URL_KEYS:
        return f"; an agent with a {'url' if key in URL_KEYS else 'command'!r} has it"
    synonym = _SYNONYMS.get(key.lower()) if isinstance(key, str) else None
    return f"; did you mean '{synonym}'?" if synonym in rows else ""


def _read_command(reader: CaseReader, path: KeyPath, value: Any) -> None:
    if isinstance(value, str) and value.strip():
        try:
            shlex.split(value)
        except ValueError:
            reader.add_problem(path, f"{reader.format_place(path)} has a quote that is never closed: {value!r}")
    elif not isinstance(value, list) or not value:
        reader.report_wrong(path, value, "a command, as text or as a list of its words")
    else:
        for index, word in enumerate(value):
            _read_text(reader, (*path, index), word, "a word of the command", empty=index > 0)


def _read_text(reader: CaseReader, path: KeyPath, value: Any, expected: str, *, empty: bool = False) -> None:
    if not isinstance(value, str) or not (value or empty):
        reader.report_wrong(path, value, expected, explain_quoting(value))
    elif "\0" in value:
        reader.add_problem(path, f"{reader.format_place(path)} holds a NUL character, which no command can be given")


def _read_folder(reader: CaseReader, path: KeyPath, value: Any) -> None:
    _read_text(reader, path, value, "a folder, relative to the project's root")


def _read_environment(reader: CaseReader, path: KeyPath, value: Any) -> None:
    for name, item in _read_items(reader, path, value, "a mapping of names to texts"):
        if not name or "=" in name or "\0" in name:
            reader.add_problem((*path, name), f"{name!r} can't name an environment variable", at_key=True)
        elif item is not None:
            _read_text(reader, (*path, name), item, "a text", empty=True)


def _read_headers(reader: CaseReader, path: KeyPath, value: Any) -> None:
    for name, item in _read_items(reader, path, value, "a mapping of names to texts"):
        if not re.fullmatch(_HEADER, name):
            reader.add_problem((*path, name), f"{name!r} can't name an HTTP header", at_key=True)
        elif isinstance(item, str) and ("\n" in item or "\r" in item or "\0" in item):
            reader.add_problem((*path, name), f"{reader.format_place((*path, name))} is one line of text")
        elif item is not None:
            _read_text(reader, (*path, name), item, "a text", empty=True)


def _read_items(reader: CaseReader, path: KeyPath, value: Any, expected: str) -> Iterable[tuple[str, Any]]:
    if isinstance(value, dict):
        return value.items()
    reader.report_wrong(path, value, expected)
    return ()


def _read_url(reader: CaseReader, path: KeyPath, value: Any) -> None:
    match = re.fullmatch(_URL, value) if isinstance(value, str) else None
    if match is None or not 0 < int(match["port"] or 80) < 65_536:
        reader.report_wrong(path, value, f"a URL such as {_ANY_URL}")


_TEXT = {"type": "string", "minLength": 1}
_TEXTS = {"type": "object", "additionalProperties": {"type": ["string", "null"]}}
_SECONDS = {"type": "number", "exclusiveMinimum": 0}
_TIMEOUT = AgentKey(read_positive, _SECONDS, "Seconds for one answer, within `settings.deadline_s`.")

COMMAND_KEYS: dict[str, AgentKey] = {
    "command": AgentKey(
        _read_command,
        {"oneOf": [_TEXT, {"type": "array", "items": {"type": "string"}, "minItems": 1}]},
        "The command, as a list of its words or as one text; no shell is asked. `python` is the Python of evalkit.",
    ),
    "cwd": AgentKey(
        _read_folder, _TEXT, "The folder it runs in, relative to the project's root, which is the default."
    ),
    "env": AgentKey(_read_environment, _TEXTS, "Environment variables besides the inherited ones; `null` removes one."),
    "timeout": _TIMEOUT,
}
URL_KEYS: dict[str, AgentKey] = {
    "url": AgentKey(
        _read_url,
        {"type": "string", "pattern": f"^{_URL.replace('?P<port>', '?:')}$"},
        "Where the agent is asked, with a POST.",
    ),
    "headers": AgentKey(_read_headers, _TEXTS, "HTTP headers of the request."),
    "timeout": _TIMEOUT,
}
_SYNONYMS = {
    "cmd": "command",
    "argv": "command",
    "args": "command",
    "run": "command",
    "process": "command",
    "dir": "cwd",
    "directory": "cwd",
    "workdir": "cwd",
    "working_directory": "cwd",
    "environment": "env",
    "variables": "env",
    "deadline_s": "timeout",
    "deadline": "timeout",
    "timeout_s": "timeout",
    "endpoint": "url",
    "uri": "url",
    "http": "url",
    "address": "url",
}


def build_agent_schema(keys: Mapping[str, AgentKey]) -> dict[str, Any]:
    """The JSON Schema of a mapping with these keys, of which the first is required."""
    return {
        "type": "object",
        "properties": {key: {**row.schema, "description": row.doc} for key, row in keys.items()},
        "required": [next(iter(keys))],
        "additionalProperties": False,
    }
