"""Stand-ins of secrets in recordings: each secret has one, as long as it and of the same form."""

from __future__ import annotations

import base64
import json
import re
from typing import TypeVar, cast

from evalkit.jsonvalue import map_strings
from evalkit.text.redact import REDACTED, TOKEN_BEGINNINGS

T = TypeVar("T")
_SHORTEST_COPY = 8  # a shorter secret is replaced where it was found, and not wherever it occurs
PLAIN_WORD = re.compile("[A-Za-z_-]+")
_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_HEX = re.compile(r"[0-9a-f]{16,}")
_JWT = re.compile(r"eyJ[\w-]+\.eyJ[\w-]+\.[\w-]+")
_STAND_IN = re.compile(
    rf"(?:{'|'.join(map(re.escape, TOKEN_BEGINNINGS))})?redacted\d+x*|00000000-0000-4000-8000-[0-9a-f]{{12}}"
    r"|eyJhbGciOiJub25lIn0\.eyJyZWRhY3RlZCI6[\w-]+\.x|\b0{8,}[0-9a-f]{1,4}\b"
)


def build_stand_in(secret: str, number: int) -> str:
    """Build the stand-in of a secret, the recording's `number`th: as long as it, and of the same kind."""
    size = len(secret)
    if _UUID.fullmatch(secret):
        return f"00000000-0000-4000-8000-{number:012x}"
    if secret.isdecimal() and size >= _SHORTEST_COPY:
        return f"{number:0{size}d}"
    if _HEX.fullmatch(secret):
        return f"{number:0{size}x}"
    if _JWT.fullmatch(secret):  # no signature: {"alg":"none"} and {"redacted":1000001}
        return f"eyJhbGciOiJub25lIn0.{_encode_base64(json.dumps({'redacted': 1_000_000 + number}))}.x"
    begin = next((begin for begin in TOKEN_BEGINNINGS if secret.startswith(begin)), "")
    return f"{begin}redacted{number}".ljust(size, "x")


def _encode_base64(text: str) -> str:
    return base64.urlsafe_b64encode(text.replace(" ", "").encode()).decode().rstrip("=")


class StandIns:
    """The secrets of one recording, and their stand-ins."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        self.copied: set[str] = set()  # those that are replaced wherever they occur
        self._given: set[str] = set()

    def hide(self, secret: str) -> str:
        """Return the stand-in of a secret; a stand-in as it is."""
        if secret in self._given or not secret:
            return secret
        if secret not in self.names:
            self.names[secret] = build_stand_in(secret, len(self.names) + 1)
            self._given.add(self.names[secret])
        return self.names[secret]

    def hide_everywhere(self, secret: str) -> str:
        """Return the stand-in of a secret that may stand elsewhere too, without a key that tells."""
        if secret not in self._given and len(secret) >= _SHORTEST_COPY and not PLAIN_WORD.fullmatch(secret):
            self.copied.add(secret)
        return self.hide(secret)


def mask_stand_ins(data: T) -> T:
    """Copy JSON data with each stand-in as the word that stands for any secret."""
    return cast("T", map_strings(data, lambda text: _STAND_IN.sub(REDACTED, text)))
