"""What a person answers to Claude Code's questions about calls, as the case says. Imports the framework."""

from __future__ import annotations

from claude_agent_sdk import PermissionResult, PermissionResultAllow, PermissionResultDeny, ToolPermissionContext

from evalkit.agents.task import Task
from evalkit.features.approvals.desk import ApprovalDesk, ApprovalRequest
from evalkit.jsonvalue import JsonDict


class CasePermissions:
    """Answers by ``input.approvals``. `open_requests` are those without an answer, at which the run is interrupted."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self.open_requests: list[ApprovalRequest] = []

    async def decide(self, name: str, arguments: JsonDict, context: ToolPermissionContext) -> PermissionResult:
        """Answer as `ClaudeAgentOptions.can_use_tool`."""
        desk, request = self._task.take_part(ApprovalDesk), (name, arguments, context.tool_use_id)
        decisions = desk.decide_all([request])
        if decisions is None:
            self.open_requests.append(request)
            return PermissionResultDeny(message=desk.explain_missing([request]), interrupt=True)
        if decisions[0].is_denied:
            return PermissionResultDeny(message=decisions[0].reason)
        return PermissionResultAllow(updated_input=decisions[0].arguments)
