"""Text from agents is hostile: what could move a cursor, reorder a line or hide is shown as an escape instead.

Escaped are control characters (ANSI begins with one), format characters (bidirectional marks, zero-width and tag
characters; joiners stay, since emoji and Persian need them), line separators, lone surrogates and noncharacters. So
is what makes a line a command to the CI runner in whose log it stands, such as ``::stop-commands::``.
"""

from __future__ import annotations

import re
import unicodedata

_JOINERS = "\u200c\u200d"
_HARMLESS_SPACES = "\u00a0\u202f\u3000"
_ESCAPED = {"Cc", "Cf", "Cs", "Cn", "Zl", "Zp"}
# GitHub's runner obeys `::name ...::` after any white space of a line and `##[name ...]` anywhere in it; Azure's
# `##vso[...]`, TeamCity's `##teamcity[...]`.
_COMMAND = r"(?m)^(?P<before>[^\S\n]*):(?=:[\w-]+(?: [^\n]*)?::)|#(?=#\w*\[)"


def escape_controls(text: str, keep: str = "") -> str:
    r"""Return `text` with characters that a terminal would obey or hide as ``\x1b`` or ``\u202e``; `keep` stays."""
    if _has_unprintable(text, keep):
        text = "".join(char if char.isprintable() or char in keep else _escape_char(char) for char in text)
    return re.sub(_COMMAND, _escape_command, text) if "::" in text or "##" in text else text


def _has_unprintable(text: str, keep: str) -> bool:
    if text.isprintable():
        return False
    for char in keep:
        text = text.replace(char, "")
    return not text.isprintable()


def is_harmless(text: str) -> bool:
    """Return whether `escape_controls` leaves `text`, and so each part of it, unchanged. May return False for
    harmless text."""
    return text.isprintable() and "::" not in text and "##" not in text


def _escape_command(command: re.Match[str]) -> str:
    return r"\x23" if command["before"] is None else rf"{command['before']}\x3a"


def escape_json_commands(text: str) -> str:
    """Escape commands in JSON; it stays the same JSON: its lines begin with none, and ``#`` is in its strings alone."""
    return re.sub(_COMMAND, r"\\u0023", text)


def escape_lines(text: str) -> str:
    """Escape like `escape_controls`, for text of several lines: line feeds and tabs stay."""
    return escape_controls(text.replace("\r\n", "\n"), keep="\n\t")


def _escape_char(char: str) -> str:
    if char in _JOINERS or char in _HARMLESS_SPACES or unicodedata.category(char) not in _ESCAPED:
        return char
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def fit_to_encoding(text: str, encoding: str | None) -> str:
    """Return `text` with what `encoding` can't write as escapes; evalkit's own signs get an ASCII stand-in first."""
    if not encoding or encoding.lower().replace("-", "") == "utf8":
        return text
    try:
        text.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        for sign, plain in _STAND_INS:
            text = text.replace(sign, plain)
        return text.encode(_lookup_encoding(encoding), "backslashreplace").decode(_lookup_encoding(encoding))
    return text


_STAND_INS = (
    ("✓", "ok"),
    ("✗", "FAIL"),
    ("→", "->"),
    ("·", "-"),
    ("…", "..."),
    ("–", "-"),
    ("≥", ">="),
    ("\u202f", " "),
)


def _lookup_encoding(encoding: str) -> str:
    import codecs

    try:
        return codecs.lookup(encoding).name
    except LookupError:
        return "ascii"
