"""Rules of lint, findings by them, and the edits by which `--fix` fixes findings, all of a file's at once or none."""

from __future__ import annotations

import ast
import difflib
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec import Struct, field

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
    """A kind of finding. `fixable`: `--fix` can fix some of them; `optional`: off unless it is selected."""

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


class Changes(Struct):
    """Changes to make: new texts of files, and new names. Files are relative to the root."""

    texts: dict[str, tuple[str, str]] = field(default_factory=dict)  # file -> before, after
    renames: list[Rename] = field(default_factory=list)
    fixed_count: int = 0

    def format_diff(self) -> Iterator[str]:
        """Yield a unified diff, line by line."""
        for file, (before, after) in self.texts.items():
            yield from difflib.unified_diff(
                before.splitlines(), after.splitlines(), f"a/{file}", f"b/{file}", lineterm=""
            )
        for rename in self.renames:
            yield f"rename {rename.file} to {rename.new_file}"


def plan_changes(findings: Iterable[Finding], root: Path) -> Changes:
    """Return the changes that fix `findings`, as far as they can be fixed."""
    changes = Changes()
    edits: dict[str, list[Edit]] = {}
    for finding in findings:
        if isinstance(finding.fix, Rename):
            changes.renames.append(finding.fix)
            changes.fixed_count += 1
        elif isinstance(finding.fix, Edit):
            edits.setdefault(finding.fix.file, []).append(finding.fix)
    for file, file_edits in edits.items():
        before = (root / file).read_text("utf-8-sig")
        chosen: list[Edit] = []  # without doubles and overlaps
        for edit in sorted(set(file_edits), key=lambda edit: (edit.start, edit.end, edit.text)):
            if not chosen or edit.start >= chosen[-1].end:
                chosen.append(edit)
        after = before
        for edit in reversed(chosen):
            after = after[: edit.start] + edit.text + after[edit.end :]
        try:
            if file.endswith(".py"):
                ast.parse(after)
        except (SyntaxError, ValueError):
            continue
        changes.texts[file] = (before, after)
        changes.fixed_count += len(file_edits)
    return changes


def apply_changes(changes: Changes, root: Path) -> None:
    """Write the texts, each file all or nothing and with its own line ends, and rename."""
    for file, (_, after) in changes.texts.items():
        path = root / file
        old = path.read_bytes()
        new = after.replace("\n", "\r\n") if b"\r\n" in old else after
        mark = b"\xef\xbb\xbf" if old.startswith(b"\xef\xbb\xbf") else b""
        partial = path.with_name(f".{path.name}.{os.getpid()}.part")
        partial.write_bytes(mark + new.encode("utf-8"))
        partial.chmod(path.stat().st_mode & 0o777)
        partial.replace(path)
    for rename in changes.renames:
        if not (root / rename.new_file).exists():
            (root / rename.file).rename(root / rename.new_file)
