"""The mock MCP server: it lists a case's functions as tools, and has every call answered and recorded by the run.

It is the official `mcp` package's server (extra `mcp`), so that what clients see is what a real server would show.
Where the answers come from is the caller's business: the run in this process, or another one over HTTP.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from urllib.request import ProxyHandler, Request, build_opener

from evalkit.jsonvalue import JsonDict

if TYPE_CHECKING:
    from mcp.server import Server

    from evalkit.agents.remote.server import CallFunction, ListFunctions


SERVER_NAME = "evalkit"


def build_mock_server(list_functions: ListFunctions, call_function: CallFunction) -> Server[Any]:
    """Return a server, to be run over any transport of the `mcp` package.

    A function that fails is a tool result with `isError`, as a real tool's failure is; so is a call of a name that
    nobody offers, which fails the case. Arguments are passed on as they come: the case judges them.
    """
    from mcp.server import Server
    from mcp.types import CallToolRequestParams, CallToolResult, ListToolsResult, TextContent, Tool

    async def list_tools(context: object, parameters: object) -> ListToolsResult:
        return ListToolsResult(
            tools=[
                Tool(name=function["name"], description=function["description"], input_schema=function["parameters"])
                for function in await list_functions()
            ]
        )

    async def call_tool(context: object, parameters: CallToolRequestParams) -> CallToolResult:
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


# ---- over stdio: ``python -m evalkit.features.mcp.mock_server FILE`` hands every call to the run's functions server.
# Its URL is in FILE, for it holds a token, and any user of the machine can read the arguments of a process ----

USAGE = "usage: python -m evalkit.features.mcp.mock_server FUNCTIONS_URL, or a file that holds it"


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until stdin ends."""
    values = sys.argv[1:] if arguments is None else arguments
    if len(values) != 1:
        raise SystemExit(USAGE)
    url = values[0]
    if not url.startswith("http"):
        try:
            url = Path(url).read_text("utf-8").strip()
        except OSError as error:
            raise SystemExit(f"{url}: can't be read: {error.strerror}; {USAGE}") from None
    asyncio.run(_serve(url.rstrip("/")))


async def _serve(base: str) -> None:
    from mcp.server.stdio import stdio_server

    async def list_functions() -> list[JsonDict]:
        return await asyncio.to_thread(_fetch, f"{base}/functions")

    async def call_function(name: str, arguments: JsonDict) -> JsonDict:
        return await asyncio.to_thread(_fetch, f"{base}/call/{quote(name, safe='')}", json.dumps(arguments).encode())

    server = build_mock_server(list_functions, call_function)
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


def _fetch(url: str, body: bytes | None = None) -> Any:
    """Return the JSON at `url`: the run is on this machine, so no proxy is asked."""
    headers = {"content-type": "application/json"}
    with build_opener(ProxyHandler({})).open(Request(url, body, headers)) as response:  # noqa: S310  (our own URL)
        return json.load(response)


if __name__ == "__main__":
    main()
