"""A desk that answers complaints by letter."""

from __future__ import annotations

import re

import evalkit

_LETTERS = {
    "late": "We are sorry that your parcel came late. It should not have happened.",
    "broken": "We apologise for the broken lid. A new one is on its way to you.",
}


@evalkit.agent("letters")
def answer(task: evalkit.Task) -> str:
    for name in re.findall(r"[A-Z][a-z]+(?= writes)", task.message):
        complaint = task.call("read_complaint", customer=name)
        task.call("send_letter", customer=name, body=f"Dear {name},\n\n{_LETTERS[complaint['about']]}\n")
    return "I have answered. Customers hear from the workshop within two days."
