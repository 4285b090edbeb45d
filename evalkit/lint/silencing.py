"""Findings that a comment on their line silences: ``# evalkit: ignore[never-expected]``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from evalkit.lint.finding import Finding

_COMMENT = re.compile(r"evalkit: *ignore(?:\[(?P<rules>[\w, -]+)\])?")


def remove_silenced(findings: Iterable[Finding], root: Path) -> Iterator[Finding]:
    """Findings whose line has no such comment, or one about other rules."""
    lines: dict[str, list[str]] = {}
    for finding in findings:
        file, line = finding.location.file, finding.location.line
        if line and file not in lines:
            lines[file] = _read_lines(root / file)
        text = lines[file][line - 1] if line and line <= len(lines[file]) else ""
        if not _is_silenced(text, finding):
            yield finding


def _read_lines(path: Path) -> list[str]:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return text.splitlines() if "evalkit:" in text else []


def _is_silenced(text: str, finding: Finding) -> bool:
    match = _COMMENT.search(text)
    if match is None:
        return False
    rules = {rule.strip() for rule in (match["rules"] or "").split(",")} - {""}
    return not rules or bool(rules & {finding.name, finding.rule.code})
