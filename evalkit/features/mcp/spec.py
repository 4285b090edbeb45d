"""What a case or the project says of an MCP server, and how it is used."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from importlib.util import find_spec

from msgspec import Struct

from evalkit.errors import RemoteAgentError
from evalkit.functions.targets import AnyFunction
from evalkit.jsonvalue import JsonObject

# Methods of the protocol, which a case calls as if they were tools.
LIST_TOOLS, READ_RESOURCE = "tools/list", "resources/read"
METHODS = (LIST_TOOLS, "resources/list", "resources/templates/list", READ_RESOURCE, "prompts/list", "prompts/get")
SCOPES = WORKER, CASE = ("worker", "case")
RESULTS = VALUE, PARSED, WHOLE = ("value", "json", "whole")
NEEDS_EXTRA = "an agent that is an MCP server needs the package 'mcp': pip install 'pytest-evalkit[mcp]'"


class ServerSpec(Struct, frozen=True, kw_only=True):
    """A server, and how it is used. It has one of `command`, `url` and `factory`, which makes an object of `mcp`."""

    name: str
    command: tuple[str, ...] = ()
    cwd: str = ""
    env: Mapping[str, str | None] = {}
    url: str = ""
    headers: Mapping[str, str] = {}
    factory: AnyFunction | None = None
    timeout_s: float | None = None  # of one call
    scope: str = WORKER
    results: str = VALUE

    @property
    def key(self) -> str:
        """What two cases must have in common to share a server."""
        where = (self.command, self.cwd, dict(self.env), self.url, dict(self.headers), repr(self.factory))
        return json.dumps((self.name, where, self.timeout_s, self.results))


def parse_server(name: str, data: JsonObject) -> ServerSpec:
    """Build the spec of the server that the checked mapping `data` describes."""
    command = data.get("command") or ()
    return ServerSpec(
        name=name,
        command=tuple(shlex.split(command) if isinstance(command, str) else command),
        cwd=data.get("cwd") or "",
        env=data.get("env") or {},
        url=data.get("url") or "",
        headers={key: value for key, value in (data.get("headers") or {}).items() if value is not None},
        timeout_s=data.get("timeout"),
        scope=data.get("scope") or WORKER,
        results=data.get("results") or VALUE,
    )


def has_mcp() -> bool:
    """Return whether the `mcp` package is installed. Imports nothing."""
    return find_spec("mcp") is not None


def check_extra() -> None:
    """Raise RemoteAgentError where the `mcp` package is not installed."""
    if not has_mcp():
        raise RemoteAgentError(NEEDS_EXTRA, code="missing_extra")
