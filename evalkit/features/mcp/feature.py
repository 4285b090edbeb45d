"""The hooks of MCP."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from evalkit.features.mcp import keys
from evalkit.hooks import INPUT, AgentForm, AgentRequest, CaseDraft, Feature, Place
from evalkit.jsonvalue import JsonDict
from evalkit.lazy import LazyModule
from evalkit.spec.case_reader import CaseKey

if TYPE_CHECKING:
    from evalkit.agents.contract import AgentUnderTest
    from evalkit.agents.remote.server import CallFunction, FunctionsEndpoint, ListFunctions
    from evalkit.features.mcp import agent, endpoint, settings
else:
    agent = LazyModule("evalkit.features.mcp.agent")
    endpoint = LazyModule("evalkit.features.mcp.endpoint")
    settings = LazyModule("evalkit.features.mcp.settings")


class Mcp(Feature):
    """MCP servers as agents, and the functions of a run as a mock MCP server."""

    name = "mcp"

    def list_keys(self) -> Mapping[Place, Mapping[str, CaseKey]]:
        return {INPUT: {"calls": keys.CALLS_KEY}}

    def list_definitions(self, checks: Iterable[str]) -> Mapping[str, JsonDict]:
        return {"direct_call": keys.DIRECT_CALL}

    def list_agent_forms(self) -> Mapping[str, AgentForm]:
        return {"mcp": keys.FORM}

    def compile(self, draft: CaseDraft) -> None:
        keys.check_calls(draft)

    def read_setting(self, key: str, value: object) -> JsonDict:
        return settings.read_servers(value)

    def build_agent(self, request: AgentRequest) -> AgentUnderTest:
        return agent.build_mcp_agent(request)

    def build_endpoint(self, list_functions: ListFunctions, call: CallFunction) -> FunctionsEndpoint:
        return endpoint.McpEndpoint(list_functions, call)
