"""What the record of a call says of its approval."""

from __future__ import annotations

from typing import Any

from msgspec import Struct, convert, to_builtins

from evalkit.jsonvalue import JsonDict
from evalkit.records.transcript import DENIED, AgentValue, FunctionCall

NAME = "approvals"
APPROVED, CHANGED = "approved", "changed"
APPROVALS = (APPROVED, DENIED, CHANGED)


class Approval(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer of a person to a call that needs approval: approved, denied, or approved with changed arguments."""

    answer: str
    reason: str = ""  # of a denial
    asked: AgentValue = None  # the arguments with which the agent asked, where the person changed them

    def to_data(self) -> JsonDict:
        """Return JSON data for `FunctionCall.features`."""
        data: JsonDict = to_builtins(self)
        return data


def get_approval(call: FunctionCall) -> Approval | None:
    """Return what a person answered to a call; None if nobody was asked."""
    data: Any = call.features.get(NAME)
    return None if data is None else convert(data, Approval)


def get_answer(call: FunctionCall) -> str | None:
    """Return the answer alone."""
    data: Any = call.features.get(NAME)
    return None if data is None else str(data["answer"])


def put_approval(call: FunctionCall, approval: Approval | None) -> JsonDict:
    """Return `features` of `call` with another answer."""
    rest = {name: data for name, data in call.features.items() if name != NAME}
    return rest if approval is None else {**rest, NAME: approval.to_data()}
