"""One thing that lint found, and how `--fix` would mend it."""

from __future__ import annotations

import re

from msgspec import Struct

from evalkit.errors import Location
from evalkit.lint.rules.table import RULES_BY_NAME, Rule


class Edit(Struct, frozen=True):
    """Replace what stands between two offsets (in characters, of the file's text) by `text`. `file` from the root."""

    file: str
    start: int
    end: int
    text: str


class Rename(Struct, frozen=True):
    """Give a file another name in its folder. Both from the root."""

    file: str
    new_file: str


class Finding(Struct, frozen=True, kw_only=True):
    """`message` says what is wrong, `advice` what to do, each in one line. `related`: the other place, if any."""

    name: str
    location: Location
    message: str
    advice: str
    related: Location | None = None
    severity: str = ""  # as configured; the rule's own until then
    fix: Edit | Rename | None = None

    @property
    def rule(self) -> Rule:
        return RULES_BY_NAME[self.name]

    @property
    def key(self) -> tuple[str, str, str]:
        """What stays the same when lines move: the finding's identity in a baseline."""
        return (self.name, self.location.file, self.message)


def add_line_below(text: str, file: str, line: int, indent: int, new: str) -> Edit | None:
    """Add a line below `line`, which must be a key (and its value) alone on its line; None where it is not."""
    lines = text.splitlines(keepends=True)
    line_text = lines[line - 1] if line <= len(lines) else ""
    if not re.match(r"""\s*(?:- )?[\w.:"'-]+:(?:[ \t]+[\w.:"'-]+)?[ \t]*(?:#.*)?$""", line_text.rstrip("\r\n")):
        return None
    at = sum(map(len, lines[:line]))
    return Edit(file, at, at, " " * indent + new + "\n")
