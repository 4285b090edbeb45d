"""The MCP servers that code registers: `@evalkit.mcp_server("stock")`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from evalkit.errors import UsageError
from evalkit.features.mcp.spec import RESULTS, SCOPES
from evalkit.functions.targets import AnyFunction
from evalkit.records.registry import Registry

F = TypeVar("F", bound=AnyFunction)

MCP_SERVERS = Registry("mcp_server")


def mcp_server(
    name: str, *, timeout: float | None = None, scope: str = "worker", results: str = "value"
) -> Callable[[F], F]:
    """Register the decorated function, which makes a server object of the `mcp` package, as MCP server `name`.

    Cases use it with ``agent: {mcp: NAME}``. It runs in this process. For the options see ``agent.mcp``.
    """
    if scope not in SCOPES or results not in RESULTS:
        raise UsageError("evalkit.mcp_server: scope is 'worker' or 'case', results is 'value', 'json' or 'whole'")
    return MCP_SERVERS.build_decorator(name, timeout_s=timeout, scope=scope, results=results)
