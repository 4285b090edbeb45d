"""The MCP servers of a project: the tables [tool.evalkit.mcp_servers.NAME]."""

from __future__ import annotations

from collections.abc import Callable

from evalkit.config import build_choice_reader, read_amount, read_strings, read_text, read_texts
from evalkit.errors import UsageError
from evalkit.features.mcp.spec import RESULTS, SCOPES
from evalkit.fields.reader import describe_unknown_key
from evalkit.jsonvalue import JsonDict

_READERS: dict[str, Callable[[object], object]] = {
    "command": read_strings,
    "url": read_text,
    "cwd": read_text,
    "env": read_texts,
    "headers": read_texts,
    "timeout": read_amount,
    "scope": build_choice_reader(*SCOPES),
    "results": build_choice_reader(*RESULTS),
}


def read_servers(value: object) -> JsonDict:
    """Read the MCP servers by name: each is started by `command`, a list of words, or reached at `url`."""
    if not isinstance(value, dict):
        raise ValueError("a table of MCP servers")
    servers: JsonDict = {}
    for name, data in value.items():
        if not isinstance(data, dict):
            raise UsageError(f".{name} must be a table with command or url, got {data!r}")
        unknown = [key for key in data if key not in _READERS]
        if unknown:
            raise UsageError(f": {describe_unknown_key(unknown[0], f'mcp_servers.{name}', _READERS)}")
        if ("command" in data) == ("url" in data):
            raise UsageError(f".{name} must have one of command and url, got {data!r}")
        servers[name] = {key: _read_key(name, key, item) for key, item in data.items()}
    return servers


def _read_key(name: str, key: str, value: object) -> object:
    try:
        return _READERS[key](value)
    except ValueError as error:
        raise UsageError(f".{name}.{key}: {value!r} is not {error}") from None
