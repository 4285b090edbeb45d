"""A desk that answers customers' mails. It knows nothing of evalkit."""

from __future__ import annotations

from typing import Any

from langchain.agents import create_agent
from langchain.tools import tool


@tool
def check_warranty(serial_number: str) -> dict[str, str]:
    """Looks up the warranty of a serial number."""
    raise ConnectionError(f"this would ask the manufacturer about {serial_number}")


@tool
def send_reply(to: str, body: str) -> dict[str, str]:
    """Sends a mail."""
    raise ConnectionError(f"this would send {to} a mail: {body}")


def desk_with(model: Any) -> Any:
    """The desk, a compiled graph."""
    told = "Look the serial number up, then send the customer a mail."
    return create_agent(model, [check_warranty, send_reply], system_prompt=told)
