"""The mock MCP server: it lists a case's functions as tools, and has every call answered and recorded by the run.

It is the official `mcp` package's server (extra `mcp`), so that what clients see is what a real server would show.
Where the answers come from is the caller's business: the run in this process, or another one over HTTP.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mcp.server import Server

# What is offered: [{name, description, parameters}]. What comes of a call: {"result": ...} or {"error": {...}}.
Offer = Callable[[], Awaitable[list[dict[str, Any]]]]
Call = Callable[[str, dict[str, Any]], Awaitable[Mapping[str, Any]]]

NAME = "evalkit"
NEEDS_EXTRA = "the mock MCP server needs the package 'mcp': pip install 'pytest-evalkit[mcp]'"


def has_mcp() -> bool:
    """Whether the `mcp` package is installed. Imports nothing."""
    return find_spec("mcp") is not None


def mock_server(offer: Offer, call: Call) -> Server[Any]:
    """A server, to be run over any transport of the `mcp` package.

    A function that fails is a tool result with `isError`, as a real tool's failure is; so is a call of a name that
    nobody offers, which fails the case. Arguments are passed on as they come: the case judges them.
    """
    from mcp.server import Server
    from mcp.types import CallToolRequestParams, CallToolResult, ListToolsResult, TextContent, Tool

    async def list_tools(context: Any, parameters: Any) -> ListToolsResult:
        return ListToolsResult(
            tools=[
                Tool(name=listed["name"], description=listed["description"], input_schema=listed["parameters"])
                for listed in await offer()
            ]
        )

    async def call_tool(context: Any, parameters: CallToolRequestParams) -> CallToolResult:
        outcome = await call(parameters.name, parameters.arguments or {})
        failed = "error" in outcome
        value = dict(outcome) if failed else outcome["result"]
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        return CallToolResult(
            content=[TextContent(text=text)],
            structured_content=value if isinstance(value, dict) else None,
            is_error=failed,
        )

    return Server(NAME, on_list_tools=list_tools, on_call_tool=call_tool)
