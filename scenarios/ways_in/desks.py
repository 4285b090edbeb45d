"""The agents of this suite that are Python functions."""

from __future__ import annotations

import re

import evalkit
from scenarios.ways_in import shop


@evalkit.agent("patched_desk")
async def patched_desk(task: evalkit.Task) -> str:
    return await shop.answer(task.input["email"])


@evalkit.agent("desk")
def desk(task: evalkit.Task) -> str:
    serial_number = re.findall(r"SN\d+", task.message)[0]
    status = task.call("check_warranty", serial_number=serial_number)["status"]
    task.call("send_reply", to=task.input["email"]["from"], body=f"{serial_number} is {status}.")
    return f"answered: {status}"


@evalkit.agent("async_desk")
async def async_desk(task: evalkit.Task) -> str:
    serial_number = re.findall(r"SN\d+", task.message)[0]
    found = await task.functions.aio["check_warranty"](serial_number=serial_number)
    await task.acall("send_reply", to=task.input["email"]["from"], body=f"{serial_number} is {found['status']}.")
    return f"answered: {found['status']}"
