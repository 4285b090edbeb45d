"""The hooks of programs and services as agents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from evalkit.features.programs.keys import FORMS
from evalkit.hooks import AgentForm, AgentRequest, Feature
from evalkit.lazy import LazyModule

if TYPE_CHECKING:
    from evalkit.agents.contract import AgentUnderTest
    from evalkit.features.programs import command, service
else:
    command = LazyModule("evalkit.features.programs.command")
    service = LazyModule("evalkit.features.programs.service")


class Programs(Feature):
    """Agents in another process: a command, which is started once per answer, and a service behind a URL."""

    name = "programs"

    def list_agent_forms(self) -> Mapping[str, AgentForm]:
        return FORMS

    def build_agent(self, request: AgentRequest) -> AgentUnderTest:
        return (service.build_url_agent if "url" in request.form else command.build_command_agent)(request)
