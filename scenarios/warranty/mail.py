"""The customer's mail as the desk reads it."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parseaddr
from typing import Any

from scenarios.warranty.html_text import html_to_text, looks_like_html
from scenarios.warranty.thread import is_forward, split_thread

_INVISIBLE = re.compile("[\u00ad\u200b-\u200f\u2060-\u2064\ufeff]")
_ODD_SPACE = re.compile("[\u00a0\u2000-\u200a\u202f\u3000]")


@dataclass(frozen=True, slots=True)
class Mail:
    """One mail. `text` is what its sender wrote in it, `forwarded` what was sent on with it; either may be empty."""

    sender: str = ""
    sender_name: str = ""
    subject: str = ""
    received: str = ""
    text: str = ""
    forwarded: str = ""

    @property
    def words(self) -> str:
        """Everything that counts as said: subject, own words, forwarded words."""
        return "\n".join(part for part in (self.subject, self.text, self.forwarded) if part)


def read_mail(data: Mapping[str, Any]) -> Mail:
    """Read an `input` with `email: {subject, body, from, received}`, or with a bare `message`."""
    email = data.get("email") or {"body": data.get("message")}
    body = _readable(email.get("body"))
    if looks_like_html(body):
        body = html_to_text(body)
    subject = _readable(email.get("subject")).strip()
    text, forwarded = split_thread(body, forwarded=is_forward(subject))
    name, address = parseaddr(_readable(email.get("reply_to") or email.get("from")))
    return Mail(address, name, subject, _readable(email.get("received")), text, forwarded)


def _readable(value: Any) -> str:
    """`value` as text with plain line ends and spaces, and without characters that no reader sees."""
    text = unicodedata.normalize("NFC", "" if value is None else str(value))
    return _ODD_SPACE.sub(" ", _INVISIBLE.sub("", text.replace("\r\n", "\n").replace("\r", "\n")))
