"""A desk that answers customers' mails. It knows nothing of evalkit."""

from __future__ import annotations

from typing import Any

from claude_agent_sdk import ClaudeAgentOptions, create_sdk_mcp_server, tool


@tool("check_warranty", "Looks up the warranty of a serial number.", {"serial_number": str})
async def check_warranty(arguments: dict[str, Any]) -> dict[str, Any]:
    raise ConnectionError(f"this would ask the manufacturer about {arguments['serial_number']}")


@tool("send_reply", "Sends a mail.", {"to": str, "body": str})
async def send_reply(arguments: dict[str, Any]) -> dict[str, Any]:
    raise ConnectionError(f"this would send a mail: {arguments}")


desk = ClaudeAgentOptions(
    system_prompt="Look the serial number up, then send the customer a mail.",
    mcp_servers={"shop": create_sdk_mcp_server("shop", tools=[check_warranty, send_reply])},
    allowed_tools=["mcp__shop__check_warranty", "mcp__shop__send_reply"],
    setting_sources=[],  # nothing of this machine's own settings
)
