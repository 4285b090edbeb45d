"""The hooks of MCP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from evalkit.features.mcp.spec import METHODS
from evalkit.hooks import AgentForm, AgentRequest, Feature
from evalkit.lazy import LazyModule

if TYPE_CHECKING:
    from evalkit.agents.contract import AgentUnderTest
    from evalkit.agents.remote.server import CallFunction, FunctionsEndpoint, ListFunctions
    from evalkit.features.mcp import agent, endpoint
else:
    agent = LazyModule("evalkit.features.mcp.agent")
    endpoint = LazyModule("evalkit.features.mcp.endpoint")


class Mcp(Feature):
    """MCP servers as agents, and the functions of a run as a mock MCP server."""

    name = "mcp"

    def list_agent_forms(self) -> Mapping[str, AgentForm]:
        return {"mcp": AgentForm(answers_calls=True, methods=METHODS)}

    def build_agent(self, request: AgentRequest) -> AgentUnderTest:
        return agent.build_mcp_agent(request)

    def build_endpoint(self, list_functions: ListFunctions, call: CallFunction) -> FunctionsEndpoint:
        return endpoint.McpEndpoint(list_functions, call)
