"""A help desk of several agents: triage looks an order up, and hands over to shipping or to billing.

Billing asks the agent who knows the policies. A person must approve each refund; if they deny it, the desk asks for
half of it once, and offers a voucher then.
"""

from __future__ import annotations

import re

import evalkit
from evalkit.errors import FunctionError


@evalkit.agent("helpdesk")
def answer(task: evalkit.Task) -> str:
    (order_id,) = re.findall(r"[A-Z]-\d+", task.message)
    with task.act_as("triage"):
        order = task.call("find_order", order_id=order_id)
        if "where" in task.message.lower():
            task.hand_over("shipping")
            parcel = task.call("track_parcel", order_id=order_id)
            return f"Your parcel is in {parcel['place']}."
        task.hand_over("billing")
        with task.act_as("policies"):
            policy = task.call("find_policy", topic="refunds")
        return pay_back(task, order_id, order["total"] * policy["share"])


def pay_back(task: evalkit.Task, order_id: str, amount: float) -> str:
    """Ask for the refund, and say what came of it."""
    for asked in (amount, amount / 2):
        try:
            refund = task.call("issue_refund", order_id=order_id, amount=asked)
        except FunctionError as error:
            if error.type != "denied":
                raise
            reason = error.message
        else:
            return f"{refund['amount']} euros are on their way."
    task.call("issue_voucher", order_id=order_id)
    return f"We can't pay the money back ({reason}), but here is a voucher."
