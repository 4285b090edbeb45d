"""Keys of mappings that describe a program to be started, or a service to be asked: for features with such agents."""

from __future__ import annotations

import re
import shlex

from evalkit.errors import KeyPath
from evalkit.fields.reader import explain_quoting
from evalkit.spec.case_reader import CaseKey, CaseReader

_HEADER = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_URL = r"https?://(\[[0-9A-Fa-f:.]+\]|[^/?#\s:@\[\]]+)(:(?P<port>[0-9]{1,5}))?([/?#]\S*)?"


def read_command(reader: CaseReader, path: KeyPath, value: object) -> None:
    """Read a command: a text, or a list of its words."""
    if isinstance(value, str) and value.strip():
        try:
            shlex.split(value)
        except ValueError:
            reader.add_problem(path, f"{reader.format_place(path)} has a quote that is never closed: {value!r}")
    else:
        for index, word in enumerate(reader.read_list(path, value, "a command, as text or as a list of its words")):
            _read_argument(reader, (*path, index), word, "a word of the command", empty=index > 0)


def _read_argument(reader: CaseReader, path: KeyPath, value: object, expected: str, *, empty: bool = False) -> None:
    """Read a text that a process or a request can be given."""
    if not isinstance(value, str) or not (value or empty):
        reader.report_wrong(path, value, expected, explain_quoting(value))
    elif "\0" in value:
        reader.add_problem(path, f"{reader.format_place(path)} holds a NUL character, which no command can be given")


def read_folder(reader: CaseReader, path: KeyPath, value: object) -> None:
    _read_argument(reader, path, value, "a folder, relative to the project's root")


def read_environment(reader: CaseReader, path: KeyPath, value: object) -> None:
    for name, item in (reader.read_mapping(path, value, "a mapping of names to texts") or {}).items():
        if not name or "=" in name or "\0" in name:
            reader.add_problem((*path, name), f"{name!r} can't name an environment variable", at_key=True)
        elif item is not None:
            _read_argument(reader, (*path, name), item, "a text", empty=True)


def read_headers(reader: CaseReader, path: KeyPath, value: object) -> None:
    for name, item in (reader.read_mapping(path, value, "a mapping of names to texts") or {}).items():
        if not re.fullmatch(_HEADER, name):
            reader.add_problem((*path, name), f"{name!r} can't name an HTTP header", at_key=True)
        elif isinstance(item, str) and ("\n" in item or "\r" in item or "\0" in item):
            reader.add_problem((*path, name), f"{reader.format_place((*path, name))} is one line of text")
        elif item is not None:
            _read_argument(reader, (*path, name), item, "a text", empty=True)


def read_url(reader: CaseReader, path: KeyPath, value: object) -> None:
    match = re.fullmatch(_URL, value) if isinstance(value, str) else None
    if match is None or not 0 < int(match["port"] or 80) < 65_536:
        reader.report_wrong(path, value, "a URL such as http://127.0.0.1:8000/answer")


TEXT = {"type": "string", "minLength": 1}
_TEXTS = {"type": "object", "additionalProperties": {"type": ["string", "null"]}}
COMMAND = CaseKey(
    read_command,
    {"oneOf": [TEXT, {"type": "array", "items": {"type": "string"}, "minItems": 1}]},
    "The command, as a list of its words or as one text; no shell is asked. `python` is the Python of evalkit.",
    synonyms=("cmd", "argv", "args", "run", "process"),
)
CWD = CaseKey(
    read_folder,
    TEXT,
    "The folder it runs in, relative to the project's root, which is the default.",
    synonyms=("dir", "directory", "workdir", "working_directory"),
)
ENV = CaseKey(
    read_environment,
    _TEXTS,
    "Environment variables besides the inherited ones; `null` removes one.",
    synonyms=("environment", "variables"),
)
URL = CaseKey(
    read_url,
    {"type": "string", "pattern": f"^{_URL.replace('?P<port>', '?:')}$"},
    "Where the agent is asked, with a POST.",
    synonyms=("endpoint", "uri", "http", "address"),
)
HEADERS = CaseKey(read_headers, _TEXTS, "HTTP headers of the request.")
TIMEOUT = CaseKey(
    CaseReader.read_positive,
    {"type": "number", "exclusiveMinimum": 0},
    "Seconds for one answer, within `settings.deadline_s`.",
    synonyms=("deadline_s", "deadline", "timeout_s"),
)
