"""Rules of lint, findings by them, and the edits by which `--fix` mends a finding."""

from __future__ import annotations

import re

from msgspec import Struct

from evalkit.errors import Location

ERROR, WARNING, NOTE = "error", "warning", "note"
SEVERITIES = (ERROR, WARNING, NOTE)


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


class Rule(Struct, frozen=True):
    """One kind of finding. `fixable`: `--fix` can mend some of them; `optional`: off unless it is selected."""

    code: str
    name: str
    severity: str
    summary: str
    fixable: bool = False
    optional: bool = False

    def report(
        self,
        location: Location,
        message: str,
        advice: str,
        *,
        related: Location | None = None,
        fix: Edit | Rename | None = None,
    ) -> Finding:
        """Return a finding of this rule."""
        return Finding(self, location, message, advice, related, self.severity, fix)


class Finding(Struct, frozen=True):
    """A violation of a rule. `message` says the fault, `advice` the remedy, in a line each; `related` another place."""

    rule: Rule
    location: Location
    message: str
    advice: str
    related: Location | None = None
    severity: str = ""  # as configured
    fix: Edit | Rename | None = None

    @property
    def name(self) -> str:
        return self.rule.name

    @property
    def key(self) -> tuple[str, str, str]:
        """Rule, file and message, which stay the same when lines move: the finding's identity in a baseline."""
        return (self.name, self.location.file, self.message)


def add_line_below(text: str, file: str, line: int, indent: int, new: str) -> Edit | None:
    """Add a line below `line`, which must be a key (and its value) alone on its line; return None where it is not."""
    lines = text.splitlines(keepends=True)
    line_text = lines[line - 1] if line <= len(lines) else ""
    if not re.match(r"""\s*(?:- )?[\w.:"'-]+:(?:[ \t]+[\w.:"'-]+)?[ \t]*(?:#.*)?$""", line_text.rstrip("\r\n")):
        return None
    at = sum(map(len, lines[:line]))
    return Edit(file, at, at, " " * indent + new + "\n")
