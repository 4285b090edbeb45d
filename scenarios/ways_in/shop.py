"""A shop's own code. It knows nothing of evalkit, and nothing in it was changed for it."""

from __future__ import annotations

import re
from typing import Any


class WarrantyClient:
    """Asks the manufacturer."""

    def check(self, serial_number: str) -> dict[str, Any]:
        raise ConnectionError(f"this would ask the manufacturer about {serial_number}")


async def send_reply(to: str, body: str) -> None:
    """Sends a mail."""
    raise ConnectionError(f"this would send {to} a mail: {body}")


async def answer(mail: dict[str, str]) -> str:
    """Answer a customer's mail."""
    serial_number = re.findall(r"SN\d+", mail["body"])[0]
    status = WarrantyClient().check(serial_number)["status"]
    await send_reply(mail["from"], body=f"{serial_number} is {status}.")
    return f"answered: {status}"
