"""What the text-call parser gives back."""

from __future__ import annotations

import json
from typing import Any

from msgspec import Struct

from evalkit.model.keyed import FieldAccess


class TextCall(FieldAccess, Struct, frozen=True):
    """One recovered call. Fields are also read by key: ``call["name"]``."""

    name: str
    arguments: dict[str, Any]
    raw: str
    repairs: tuple[str, ...] = ()
    start: int = 0
    end: int = 0

    @property
    def standard(self) -> str:
        """The call in the standard form, for the conversation's history."""
        body = json.dumps({"name": self.name, "parameters": self.arguments}, ensure_ascii=False)
        return f"<function>{body}</function>"


class Rejected(Struct, frozen=True):
    """Something that looks like a call and may not be made, with the reason."""

    raw: str
    reason: str


class ParsedText(Struct, frozen=True):
    """`calls` in the order of the text; `text` is the prose without them; `history` has each call in standard form.

    `unfinished` is the call, if any, in whose middle the text ends: it was not made. Behind `open_at`, if anything, the
    text holds JSON or a tag that is not closed: were the text to go on, calls there might turn out to be part of it.
    """

    calls: tuple[TextCall, ...] = ()
    text: str = ""
    history: str = ""
    rejected: tuple[Rejected, ...] = ()
    unfinished: str | None = None
    open_at: int | None = None
