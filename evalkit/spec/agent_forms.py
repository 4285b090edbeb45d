"""What `agent:` may say beside a name: the mapping of an agent that is a command or lives behind a URL."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from evalkit.spec.reading import CaseReader, Path, positive, quoting

FORMS = "a name, package.module:attribute, an instruction file (.md), or a mapping with 'command' or 'url'"
_HEADER = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_URL = r"https?://(\[[0-9A-Fa-f:.]+\]|[^/?#\s:@\[\]]+)(:(?P<port>[0-9]{1,5}))?([/?#]\S*)?"
_ANY_URL = "http://127.0.0.1:8000/answer"


class AgentKey(NamedTuple):
    """One key of the mapping: ``read(reader, path, value)``, the schema of its value, one sentence."""

    read: Callable[[CaseReader, Path, Any], object]
    schema: Mapping[str, Any]
    doc: str


def agent_mapping(reader: CaseReader, path: Path, value: Any) -> Any:
    """The mapping, without the keys that are null."""
    if not isinstance(value, dict):
        reader.wrong(path, value, FORMS)
        return None
    given = {key: item for key, item in value.items() if item is not None}
    if "command" in given and "url" in given:
        advice = "; a case adds to its suite's agent: 'command: null' or 'url: null' takes one away"
        reader.problem(path, f"agent has one of 'command' and 'url'{advice}")
        return None
    known = URL_KEYS if "url" in given else COMMAND_KEYS if "command" in given else {**COMMAND_KEYS, **URL_KEYS}
    for key, item in given.items():
        if key in known:
            known[key].read(reader, (*path, key), item)
        else:
            reader.unknown_key(path, key, known, _hint(key, known))
    if "command" not in given and "url" not in given and all(key in known for key in given):
        reader.problem(path, "agent has neither 'command' nor 'url': what is to be run, or asked")
    return given


def _hint(key: object, known: Mapping[str, AgentKey]) -> str:
    if key in COMMAND_KEYS or key in URL_KEYS:
        return f"; an agent with a {'url' if key in URL_KEYS else 'command'!r} has it"
    meant = _SYNONYMS.get(key.lower()) if isinstance(key, str) else None
    return f"; did you mean '{meant}'?" if meant in known else ""


def _command(reader: CaseReader, path: Path, value: Any) -> None:
    if isinstance(value, str) and value.strip():
        try:
            shlex.split(value)
        except ValueError:
            reader.problem(path, f"{reader.shown(path)} has a quote that is never closed: {value!r}")
    elif not isinstance(value, list) or not value:
        reader.wrong(path, value, "a command, as text or as a list of its words")
    else:
        for index, word in enumerate(value):
            _text(reader, (*path, index), word, "a word of the command", empty=index > 0)


def _text(reader: CaseReader, path: Path, value: Any, what: str, *, empty: bool = False) -> None:
    if not isinstance(value, str) or not (value or empty):
        reader.wrong(path, value, what, quoting(value))
    elif "\0" in value:
        reader.problem(path, f"{reader.shown(path)} holds a NUL character, which no command can be given")


def _folder(reader: CaseReader, path: Path, value: Any) -> None:
    _text(reader, path, value, "a folder, relative to the project's root")


def _environment(reader: CaseReader, path: Path, value: Any) -> None:
    for name, item in _items(reader, path, value, "a mapping of names to texts"):
        if not name or "=" in name or "\0" in name:
            reader.problem((*path, name), f"{name!r} can't name an environment variable", at_key=True)
        elif item is not None:
            _text(reader, (*path, name), item, "a text", empty=True)


def _headers(reader: CaseReader, path: Path, value: Any) -> None:
    for name, item in _items(reader, path, value, "a mapping of names to texts"):
        if not re.fullmatch(_HEADER, name):
            reader.problem((*path, name), f"{name!r} can't name an HTTP header", at_key=True)
        elif isinstance(item, str) and ("\n" in item or "\r" in item or "\0" in item):
            reader.problem((*path, name), f"{reader.shown((*path, name))} is one line of text")
        elif item is not None:
            _text(reader, (*path, name), item, "a text", empty=True)


def _items(reader: CaseReader, path: Path, value: Any, what: str) -> Iterable[tuple[str, Any]]:
    if isinstance(value, dict):
        return value.items()
    reader.wrong(path, value, what)
    return ()


def _url(reader: CaseReader, path: Path, value: Any) -> None:
    match = re.fullmatch(_URL, value) if isinstance(value, str) else None
    if match is None or not 0 < int(match["port"] or 80) < 65_536:
        reader.wrong(path, value, f"a URL such as {_ANY_URL}")


_TEXT = {"type": "string", "minLength": 1}
_TEXTS = {"type": "object", "additionalProperties": {"type": ["string", "null"]}}
_SECONDS = {"type": "number", "exclusiveMinimum": 0}
_TIMEOUT = AgentKey(positive, _SECONDS, "Seconds for one answer, within `settings.deadline_s`.")

COMMAND_KEYS: dict[str, AgentKey] = {
    "command": AgentKey(
        _command,
        {"oneOf": [_TEXT, {"type": "array", "items": {"type": "string"}, "minItems": 1}]},
        "The command, as a list of its words or as one text; no shell is asked. `python` is the Python of evalkit.",
    ),
    "cwd": AgentKey(_folder, _TEXT, "The folder it runs in, relative to the project's root, which is the default."),
    "env": AgentKey(_environment, _TEXTS, "Environment variables besides the inherited ones; `null` removes one."),
    "timeout": _TIMEOUT,
}
URL_KEYS: dict[str, AgentKey] = {
    "url": AgentKey(
        _url,
        {"type": "string", "pattern": f"^{_URL.replace('?P<port>', '?:')}$"},
        "Where the agent is asked, with a POST.",
    ),
    "headers": AgentKey(_headers, _TEXTS, "HTTP headers of the request."),
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


def schema_of(keys: Mapping[str, AgentKey]) -> dict[str, Any]:
    """The JSON Schema of a mapping with these keys, of which the first is required."""
    return {
        "type": "object",
        "properties": {key: {**row.schema, "description": row.doc} for key, row in keys.items()},
        "required": [next(iter(keys))],
        "additionalProperties": False,
    }
