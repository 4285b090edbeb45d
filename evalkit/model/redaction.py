"""Secrets out of text, for every sink: traces, run files, JUnit, cassettes.

Three sources: shapes of well-known tokens, keys that name a secret (``"api_key": "..."``), and values that the shell
knows to be secret (its environment). Text without any marker of these is returned as it is, at the cost of a few
substring searches, because this runs once per case.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping

REDACTED = "[redacted]"

_NO_WORD = r"(?![A-Za-z][a-z]*(?![\w~+/=-]|\.\w))"  # "a basic understanding" and "bearer certificates" are prose

# A marker that the text must contain, and what is then looked for. Group 1, where there is one, is kept.
# Compiled when its marker is first met: most runs meet none.
_SHAPES: tuple[tuple[str, str], ...] = (
    ("sk-", r"\bsk-[A-Za-z0-9_-]{16,}"),
    ("sk_", r"\b[sr]k_(?:live|test)_[A-Za-z0-9]{10,}"),
    ("AIza", r"\bAIza[A-Za-z0-9_-]{30,}"),
    ("ya29.", r"\bya29\.[A-Za-z0-9_-]{20,}"),
    ("gsk_", r"\bgsk_[A-Za-z0-9]{20,}"),
    ("hf_", r"\bhf_[A-Za-z0-9]{20,}"),
    *((f"gh{kind}_", rf"\bgh{kind}_[A-Za-z0-9]{{20,}}") for kind in "pousr"),
    ("github_pat_", r"\bgithub_pat_[A-Za-z0-9_]{20,}"),
    ("glpat-", r"\bglpat-[A-Za-z0-9_-]{16,}"),
    ("xox", r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}"),
    ("AKIA", r"\bAKIA[A-Z0-9]{16}\b"),
    ("ASIA", r"\bASIA[A-Z0-9]{16}\b"),
    ("eyJ", r"\beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+"),
    ("earer ", rf"(\b[Bb]earer ){_NO_WORD}[A-Za-z0-9._~+/-]{{8,}}=*"),
    ("asic ", rf"(\b[Bb]asic ){_NO_WORD}[A-Za-z0-9+/]{{12,}}=*"),
    (
        "PRIVATE KEY",
        r"-----BEGIN [A-Z ]*PRIVATE KEY-----(?:(?!-----BEGIN )[\s\S])*?-----END [A-Z ]*PRIVATE KEY-----",
    ),
    ("://", r"(://[^/\s:@\"'\\]{1,200}:)[^/\s@\"'\\]{1,200}(?=@)"),
)

SECRET_KEYS = (
    "password",
    "passwd",
    "passphrase",
    "secret",
    "client_secret",
    "api_key",
    "apikey",
    "access_key",
    "secret_key",
    "private_key",
    "access_token",
    "refresh_token",
    "auth_token",
    "id_token",
    "session_token",
    "token",
    "authorization",
    "x-api-key",
    "x-goog-api-key",
)
_SECRET_NAME = re.compile(r"(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?)$", re.IGNORECASE)
_SHORTEST_SECRET = 8  # shorter values of secret variables ("1", "true", "test") occur in harmless text
_SHORTEST_COPY = 6  # a shorter value of a secret key is replaced at its key, not wherever it occurs


def secrets_of(environment: Mapping[str, str]) -> tuple[str, ...]:
    """The values of variables whose names end as secrets' names do. Paths and very short values are left out."""
    values = {
        value.strip()
        for name, value in environment.items()
        if _SECRET_NAME.search(name)
        and len(value.strip()) >= _SHORTEST_SECRET
        and not value.startswith(("/", "~", "."))
    }
    return tuple(sorted(values, key=len, reverse=True))


# One of these is in any lower-case text that holds one of SECRET_KEYS as a key; the second step is for the common two.
_COARSE = ("passw", "passphrase", "secret", "key", "token", "authorization")
_FINE = {"key": ('key"', "key'", "key\\", "key="), "token": ('token"', "token'", "token\\", "token=")}

# The quote around the key, the one that opens the value, and what may follow it: JSON, Python's two ways to print a
# string, and JSON inside a string of JSON. As patterns.
_QUOTED = (
    ('"', '"', r"""(?:\\.|[^"\\])*"""),
    ("'", "'", r"""(?:\\.|[^'\\])*"""),
    ("'", '"', r"""(?:\\.|[^"\\])*"""),
    (r'\\"', r'\\"', r"""(?:\\\\(?:\\.|[^\\])|\\[^"\\]|[^"\\])*"""),
)


class Redactor:
    """Replaces secrets by ``[redacted]``. `values`: known secrets; `keys`: more key names, beside SECRET_KEYS."""

    def __init__(self, values: Iterable[str] = (), keys: Iterable[str] = ()) -> None:
        known = sorted({value for value in values if value}, key=len, reverse=True)
        # In JSON text a value stands in its escaped form, so both forms are looked for.
        self._values = tuple(dict.fromkeys(form for value in known for form in (value, json.dumps(value)[1:-1])))
        more = tuple(re.split("[_-]", key.casefold())[0] for key in keys)
        self._markers = (*_COARSE, *more)
        names = sorted({key.casefold().replace("-", "_") for key in (*SECRET_KEYS, *keys)}, key=len, reverse=True)
        key = "|".join(re.escape(name).replace("_", "[_-]?") for name in names)
        quoted = "|".join(
            rf"(?P<head{n}>{around}(?:{key}){around}\s*:\s*{quote})(?P<value{n}>{body})(?={quote})"
            for n, (around, quote, body) in enumerate(_QUOTED)
        )
        assigned = rf"""(?P<head>\b(?:{key})=)(?P<value>[^\s"'&,;\\]{{4,}})"""
        self._keyed = f"{quoted}|{assigned}"

    def __call__(self, text: str) -> str:
        """`text` itself if nothing in it is secret."""
        for value in self._values:
            if value in text:
                text = text.replace(value, REDACTED)
        for marker, pattern in _SHAPES:
            if marker in text:
                text = re.sub(pattern, _keep_head, text)  # re keeps what it compiled
        return self._by_key(text) if self._may_hold_a_key(text.lower()) else text

    def _may_hold_a_key(self, folded: str) -> bool:
        return any(
            marker in folded and (marker not in _FINE or any(part in folded for part in _FINE[marker]))
            for marker in self._markers
        )

    def _by_key(self, text: str) -> str:
        copies: set[str] = set()

        def hide(match: re.Match[str]) -> str:
            group = match.lastgroup or ""
            value = match[group]
            if value in ("", REDACTED):
                return match[0]
            if len(value) >= _SHORTEST_COPY:
                copies.add(value)
            return match[group.replace("value", "head")] + REDACTED

        text = re.sub(self._keyed, hide, text, flags=re.IGNORECASE)
        for copy in sorted(copies, key=len, reverse=True):
            text = _without_copies(text, copy)
        return text


def _without_copies(text: str, value: str) -> str:
    """Messages quote a value far from its key. A value that is a plain word may be a key or a status of the record
    itself, and so it stays where it is a whole string."""
    if re.fullmatch("[a-z_]+", value):
        return re.sub(rf"""(?<!(?<!\\)"){value}|{value}(?!")""", REDACTED, text)
    return text.replace(value, REDACTED)


def _keep_head(match: re.Match[str]) -> str:
    return (match[1] if match.re.groups else "") + REDACTED
