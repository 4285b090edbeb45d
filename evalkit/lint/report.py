"""One run of lint: gathers facts, checks the rules, and removes findings that settings, comments or a baseline hide.

A comment on a finding's line silences it: ``# evalkit: ignore[never-expected]``. The baseline is a file of known
findings, so that only new ones are reported.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from evalkit.errors import UsageError
from evalkit.lint.finding import SEVERITIES, Finding
from evalkit.lint.gather import gather
from evalkit.lint.options import LintOptions
from evalkit.lint.rules import FAMILIES, RULES_BY_NAME

VERSION = 1  # of the baseline
FindingKey = tuple[str, str, str]  # rule, file and message; lines do not count, because they move
_COMMENT = re.compile(r"evalkit: *ignore(?:\[(?P<rules>[\w, -]+)\])?")


class LintReport(Struct, frozen=True, kw_only=True):
    """Findings in the order of their places. The baseline hides `known_count`; `gone_count` of it are found no more."""

    findings: tuple[Finding, ...]
    functions: int = 0
    cases: int = 0
    known_count: int = 0
    gone_count: int = 0
    fail_on: str = SEVERITIES[1]

    @property
    def exit_status(self) -> int:
        """Return 1 if a finding is at least as severe as `fail_on`, else 0."""
        failing = SEVERITIES[: SEVERITIES.index(self.fail_on) + 1]
        return int(any(finding.severity in failing for finding in self.findings))


def check_project(options: LintOptions) -> LintReport:
    """Cross-check a project without running any model, nor, unless `options.imports`, any of its code.

    Raises UsageError for paths and baselines that can't be read.
    """
    facts = gather(options)
    selected = (
        replace(finding, severity=options.get_severity(finding.name))
        for finding in (*facts.findings, *chain.from_iterable(family.check(facts) for family in FAMILIES))
        if not options.is_off(finding.name, finding.location.file)
    )
    findings = sorted(
        remove_silenced(dict.fromkeys(selected), options.root),
        key=lambda finding: (
            finding.location.file,
            finding.location.line,
            finding.location.column,
            finding.rule.code,
            finding.message,
        ),
    )
    known_count, gone_count = 0, 0
    if options.baseline is not None:
        findings, known_count, gone_count = remove_known(findings, read_baseline(options.root / options.baseline))
    return LintReport(
        findings=tuple(findings),
        functions=len({function.name for function in facts.declarations}),
        cases=len(facts.cases),
        known_count=known_count,
        gone_count=gone_count,
        fail_on=options.fail_on,
    )


def remove_silenced(findings: Iterable[Finding], root: Path) -> Iterator[Finding]:
    """Yield the findings whose line has no comment that silences their rule."""
    lines: dict[str, list[str]] = {}
    for finding in findings:
        file, line = finding.location.file, finding.location.line
        if line and file not in lines:
            try:
                text = (root / file).read_text(encoding="utf-8", errors="replace")
            except OSError:
                text = ""
            lines[file] = text.splitlines() if "evalkit:" in text else []
        match = _COMMENT.search(lines[file][line - 1]) if line and line <= len(lines[file]) else None
        rules = {rule.strip() for rule in ((match["rules"] if match else "") or "").split(",")} - {""}
        if match is None or (rules and not rules & {finding.name, finding.rule.code}):
            yield finding


def read_baseline(path: Path) -> Counter[FindingKey]:
    """Return the known findings, and how often each was there. Raise UsageError for what is no baseline."""
    try:
        data = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise UsageError(f"{path.name}: there is no such baseline; --write-baseline makes one") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{path.name}: not a baseline of evalkit lint: {error}") from None
    if not isinstance(data, dict) or data.get("version") != VERSION or not isinstance(data.get("findings"), list):
        raise UsageError(f"{path.name}: not a baseline of evalkit lint, version {VERSION}")
    counts: Counter[FindingKey] = Counter()
    for entry in data["findings"]:
        if not isinstance(entry, dict) or not {"rule", "file", "message"} <= entry.keys():
            raise UsageError(f"{path.name}: an entry needs rule, file and message; got {entry!r}")
        counts[entry["rule"], entry["file"], entry["message"]] += entry.get("count", 1)
    return counts


def serialize_baseline(findings: Iterable[Finding]) -> str:
    """Return the text of a baseline that makes `findings` known ones."""
    counts = Counter(finding.key for finding in findings)
    entries: list[dict[str, Any]] = [
        {"rule": rule, "code": RULES_BY_NAME[rule].code, "file": file, "message": message}
        | ({"count": count} if count > 1 else {})
        for (rule, file, message), count in sorted(
            counts.items(), key=lambda item: (item[0][1], item[0][0], item[0][2])
        )
    ]
    return json.dumps({"version": VERSION, "findings": entries}, indent=1, ensure_ascii=False) + "\n"


def remove_known(findings: Iterable[Finding], baseline: Counter[FindingKey]) -> tuple[list[Finding], int, int]:
    """Return the new findings, the number of known ones, and the number of known ones that are gone."""
    remaining = baseline.copy()
    new: list[Finding] = []
    hidden = 0
    for finding in findings:
        if remaining[finding.key] > 0:
            remaining[finding.key] -= 1
            hidden += 1
        else:
            new.append(finding)
    return new, hidden, sum(count for count in remaining.values() if count > 0)
