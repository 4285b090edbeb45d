"""`evalkit mcp`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path

import click

from evalkit.errors import RemoteAgentError, UnknownAgentError, UsageError
from evalkit.features.mcp.agent import fetch_tools, find_server
from evalkit.hosts.commands.api import OUTPUT, format_examples, open_project, write_output
from evalkit.jsonvalue import JsonObject
from evalkit.records.registry import look_up_from
from evalkit.text.format import escape_json_commands


@click.command(
    name="mcp",
    short_help="Print the tools of an MCP server.",
    epilog=format_examples("evalkit mcp tools stock > scenarios/stock/tools.json"),
)
@click.argument("what", type=click.Choice(["tools"]))
@click.argument("server")
@OUTPUT
def mcp_command(what: str, server: str, output: Path | None) -> None:
    """Start SERVER, and print its tools as JSON: its name in [tool.evalkit.mcp_servers], or the path of a case whose
    agent it is.

    `evalkit lint` reads the file, and knows the tools from then on; a difference under version control shows what has
    changed. Extra `mcp`.
    """
    text = describe_tools(server)
    if output is None:
        click.echo(escape_json_commands(text))
    else:
        write_output(output, text)


def describe_tools(server: str) -> str:
    """Return the tools of a server as JSON, as `tools/list` has them: of a name, or of the agent of a case."""

    project = open_project()
    described: str | JsonObject = server
    folder: Path | None = None
    permissions = project.settings.permissions
    if server.endswith((".yaml", ".yml")):
        case = project.load_case(server)
        agent, folder = case.agent, case.folder
        if not isinstance(agent, Mapping) or "mcp" not in agent:
            raise UsageError(f"{server}: its agent is no MCP server; it would be one with `agent: {{mcp: ...}}`")
        described = agent["mcp"]
    if isinstance(described, str) and folder is None:
        project.import_all_conftests()
    try:
        with look_up_from(folder):
            tools = asyncio.run(fetch_tools(find_server(described, permissions), project.root))
    except (RemoteAgentError, UnknownAgentError) as error:
        raise UsageError(str(error)) from None
    return json.dumps({"tools": [{"name": name, **tool} for name, tool in tools.items()]}, indent=2, ensure_ascii=False)
