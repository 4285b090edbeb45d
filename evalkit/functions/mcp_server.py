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
ListFunctions = Callable[[], Awaitable[list[dict[str, Any]]]]
CallFunction = Callable[[str, dict[str, Any]], Awaitable[Mapping[str, Any]]]

SERVER_NAME = "evalkit"
NEEDS_EXTRA = "the mock MCP server needs the package 'mcp': pip install 'pytest-evalkit[mcp]'"


def has_mcp() -> bool:
    """Whether the `mcp` package is installed. Imports nothing."""
    return find_spec("mcp") is not None


def build_mock_server(list_functions: ListFunctions, call_function: CallFunction) -> Server[Any]:
    """A server, to be run over any transport of the `mcp` package.

    A function that fails is a tool result with `isError`, as a real tool's failure is; so is a call of a name that
    nobody offers, which fails the case. Arguments are passed on as they come: the case judges them.
    """
    from mcp.server import Server
    from mcp.types import CallToolRequestParams, CallToolResult, ListToolsResult, TextContent, Tool

    async def list_tools(context: Any, parameters: Any) -> ListToolsResult:
        return ListToolsResult(
            tools=[
                Tool(name=function["name"], description=function["description"], input_schema=function["parameters"])
                for function in await list_functions()
            ]
        )

    async def call_tool(context: Any, parameters: CallToolRequestParams) -> CallToolResult:
        outcome = await call_function(parameters.name, parameters.arguments or {})
        is_error = "error" in outcome
        value = dict(outcome) if is_error else outcome["result"]
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        return CallToolResult(
            content=[TextContent(text=text)],
            structured_content=value if isinstance(value, dict) else None,
            is_error=is_error,
        )

    return Server(SERVER_NAME, on_list_tools=list_tools, on_call_tool=call_tool)
