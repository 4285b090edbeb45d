"""A desk that answers customers' mails. It knows nothing of evalkit."""

from __future__ import annotations

from google.adk.agents import Agent


def check_warranty(serial_number: str) -> dict[str, str]:
    """Looks up the warranty of a serial number."""
    raise ConnectionError(f"this would ask the manufacturer about {serial_number}")


def send_reply(to: str, body: str) -> dict[str, str]:
    """Sends a mail."""
    raise ConnectionError(f"this would send {to} a mail: {body}")


desk = Agent(
    name="desk",
    model="gemini-2.5-flash",
    instruction="Look the serial number up, then send the customer a mail.",
    tools=[check_warranty, send_reply],
)
