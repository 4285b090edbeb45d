"""The mock MCP server over stdio: ``python -m evalkit.functions.mcp_stdio URL``.

A client starts it as a process, which knows nothing of the run that is going on; it hands every call to the run's
functions server at URL, and so is for clients that know no other transport.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote
from urllib.request import ProxyHandler, Request, build_opener

from evalkit.functions.mcp_server import build_mock_server

USAGE = "usage: python -m evalkit.functions.mcp_stdio FUNCTIONS_URL"


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until stdin ends."""
    values = sys.argv[1:] if arguments is None else arguments
    if len(values) != 1 or not values[0].startswith("http"):
        raise SystemExit(USAGE)
    asyncio.run(_serve(values[0].rstrip("/")))


async def _serve(base: str) -> None:
    from mcp.server.stdio import stdio_server

    async def list_functions() -> Any:
        return await asyncio.to_thread(_fetch, f"{base}/functions")

    async def call_function(name: str, arguments: dict[str, Any]) -> Any:
        return await asyncio.to_thread(_fetch, f"{base}/call/{quote(name, safe='')}", json.dumps(arguments).encode())

    server = build_mock_server(list_functions, call_function)
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


def _fetch(url: str, body: bytes | None = None) -> Any:
    """The JSON at `url`: the run is on this machine, so no proxy is asked."""
    headers = {"content-type": "application/json"}
    with build_opener(ProxyHandler({})).open(Request(url, body, headers)) as response:  # noqa: S310  (our own URL)
        return json.load(response)


if __name__ == "__main__":
    main()
