"""What is read from a model's text: its function calls, and what looks like one and may not be made."""

from __future__ import annotations

import json

from msgspec import Struct

from evalkit.jsonvalue import JsonDict
from evalkit.records.transcript import FieldAccess


class TextCall(FieldAccess, Struct, frozen=True):
    """A recovered call. Fields are also read by key: ``call["name"]``."""

    name: str
    arguments: JsonDict
    raw: str
    repairs: tuple[str, ...] = ()
    start: int = 0
    end: int = 0

    @property
    def standard(self) -> str:
        """The call in the standard form, for the conversation."""
        body = json.dumps({"name": self.name, "parameters": self.arguments}, ensure_ascii=False)
        return f"<function>{body}</function>"


class Rejected(Struct, frozen=True):
    """A text that looks like a call and may not be made, with the reason.

    `name` is set where it is a malformed call: it names that declared function, and only the rest could not be read.
    """

    raw: str
    reason: str
    name: str | None = None
    start: int = 0


class ParsedText(Struct, frozen=True):
    """Calls of a text, in its order; `text` is the prose without them; `history` has each call in standard form.

    `unfinished` is the call, if any, in whose middle the text ends: it was not made. Behind `open_at`, if anything, the
    text holds JSON or a tag that is not closed, or may be a thought: were it to go on, calls there might turn out to be
    part of that.
    """

    calls: tuple[TextCall, ...] = ()
    text: str = ""
    history: str = ""
    rejected: tuple[Rejected, ...] = ()
    unfinished: str | None = None
    open_at: int | None = None
