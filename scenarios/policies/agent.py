"""A service desk that keeps the rules of its house, and one in a hurry that does not."""

from __future__ import annotations

import re

import evalkit


@evalkit.agent("service_desk")
def serve(task: evalkit.Task) -> str:
    serials: list[str] = task.state.setdefault("serials", re.findall(r"SN\d+", task.message))
    if "repair" in task.message:
        for serial in serials:
            task.call("open_ticket", serial_number=serial)
        return f"We opened {len(serials)} tickets."
    is_agreed = "yes" in task.message.lower() or "letter" in task.message
    if not task.state.get("valid"):
        statuses = [task.call("check_warranty", serial_number=serial)["status"] for serial in serials]
        if set(statuses) != {"valid"}:
            task.call("send_email", body="The warranty has ended: there is no refund.")
            return "I am sorry, the warranty has ended."
        task.state["valid"] = True
    if not is_agreed:
        return "The warranty is valid. Shall I refund the price?"
    for serial in serials:
        task.call("refund", serial_number=serial)
    task.call("send_email", body="Your money is on its way.")
    return "Done."


@evalkit.agent("hasty_desk")
def hurry(task: evalkit.Task) -> str:
    """Writes first, pays without asking, opens tickets twice, and looks at the warranty last."""
    serials = re.findall(r"SN\d+", task.message)
    if not serials:
        return "It is done already."
    task.call("send_email", body="We take care of it.")
    for serial in serials:
        if "repair" in task.message:
            task.call("open_ticket", serial_number=serial)
            task.call("open_ticket", serial_number=serial)
        else:
            task.call("refund", serial_number=serial)
            task.call("check_warranty", serial_number=serial)
    return "Done."
