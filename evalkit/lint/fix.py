"""`--fix`: the changes that findings know to be safe, made in the files, all of a file's at once or none."""

from __future__ import annotations

import ast
import difflib
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct, field

from evalkit.lint.finding import Edit, Finding, Rename


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
    """Return the changes that mend `findings`, as far as they can be mended."""
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
        chosen = _select_separate(file_edits)
        text = before
        for edit in chosen:
            text = text[: edit.start] + edit.text + text[edit.end :]
        after = text
        if not file.endswith(".py") or _is_python(after):
            changes.texts[file] = (before, after)
            changes.fixed_count += len(file_edits)
    return changes


def _select_separate(edits: Sequence[Edit]) -> list[Edit]:
    """Return the edits without doubles and overlaps, the last of the file first."""
    chosen: list[Edit] = []
    for edit in sorted(set(edits), key=lambda edit: (edit.start, edit.end, edit.text)):
        if not chosen or edit.start >= chosen[-1].end:
            chosen.append(edit)
    return chosen[::-1]


def _is_python(text: str) -> bool:
    try:
        ast.parse(text)
    except (SyntaxError, ValueError):
        return False
    return True


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
