"""A lint report as text: for people, for programs, as GitHub annotations, as SARIF 2.1.0."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from evalkit.errors import Location
from evalkit.lint.finding import ERROR, NOTE, SEVERITIES, WARNING
from evalkit.lint.report import LintReport
from evalkit.lint.rules import RULES

# Names and texts come from files that anybody may have written: no line breaks, terminal commands, or turns of
# direction reach a terminal or a log.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def escape_unprintable(text: str) -> str:
    """Return `text` in one line, with unprintable characters as escapes."""
    return _UNPRINTABLE.sub(lambda char: char[0].encode("unicode_escape").decode(), text)


def as_text(report: LintReport) -> str:
    """Write two lines a finding: fault and place, then remedy. A summary comes last."""
    lines: list[str] = []
    for finding in report.findings:
        rule = finding.rule
        lines.append(f"{finding.location}: {finding.severity} {rule.code} {rule.name}: {finding.message}")
        see = f" (see {finding.related})" if finding.related is not None else ""
        lines.append(f"    {finding.advice}{see}")
    return "\n".join(escape_unprintable(line) for line in [*lines, format_summary(report)])


def format_summary(report: LintReport) -> str:
    """Write the numbers of findings, functions and cases, and of findings that the baseline hides."""
    counts = Counter(finding.severity for finding in report.findings)
    totals = ", ".join(_format_count(counts[kind], kind) for kind in SEVERITIES if counts[kind]) or "nothing found"
    parts = [f"{totals} in {_format_count(report.functions, 'function')} and {_format_count(report.cases, 'case')}"]
    if report.known_count:
        parts.append(f"{report.known_count} known")
    if report.gone_count:
        parts.append(f"{report.gone_count} of the baseline gone: write it anew with --write-baseline")
    return "; ".join(parts)


def _format_count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def as_json(report: LintReport) -> str:
    """Write one object: ``{version, findings: [...], summary: {...}}``."""
    data = {
        "version": 1,
        "findings": [
            {
                "code": finding.rule.code,
                "rule": finding.name,
                "severity": finding.severity,
                **_to_place_data(finding.location),
                "message": finding.message,
                "advice": finding.advice,
                "related": None if finding.related is None else _to_place_data(finding.related),
                "fixable": finding.fix is not None,
            }
            for finding in report.findings
        ],
        "summary": {
            **{kind: sum(finding.severity == kind for finding in report.findings) for kind in SEVERITIES},
            "functions": report.functions,
            "cases": report.cases,
            "known": report.known_count,
            "gone": report.gone_count,
            "exit_status": report.exit_status,
        },
    }
    return json.dumps(data, indent=2)


def _to_place_data(location: Location) -> dict[str, Any]:
    return {"file": location.file, "line": location.line, "column": location.column}


_GITHUB = {ERROR: "error", WARNING: "warning", NOTE: "notice"}


def as_github(report: LintReport) -> str:
    """Write workflow commands: GitHub shows each at its line of the pull request."""
    lines: list[str] = []
    for finding in report.findings:
        place = finding.location
        properties = {"file": place.file, "line": place.line or 1, "col": place.column or 1}
        properties["title"] = f"{finding.rule.code} {finding.name}"
        listed = ",".join(
            f"{key}={_escape_data(str(value)).replace(':', '%3A').replace(',', '%2C')}"
            for key, value in properties.items()
        )
        text = _escape_data(f"{finding.message}; {finding.advice}")
        lines.append(f"::{_GITHUB[finding.severity]} {listed}::{text}")
    return "\n".join(lines)


def _escape_data(text: str) -> str:
    return escape_unprintable(text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A"))


def as_sarif(report: LintReport, version: str) -> str:
    """Write SARIF 2.1.0, as code scanning reads it; `version` is evalkit's."""
    numbers = {rule.name: index for index, rule in enumerate(RULES)}
    rules = [
        {
            "id": rule.code,
            "name": rule.name.title().replace("-", ""),
            "shortDescription": {"text": rule.summary},
            "defaultConfiguration": {"level": rule.severity},
        }
        for rule in RULES
    ]
    results: list[dict[str, object]] = []
    for finding in report.findings:
        key = "\n".join(finding.key).encode("utf-8", "backslashreplace")
        related = [] if finding.related is None else [{"id": 1, **_build_sarif_location(finding.related)}]
        result = {
            "ruleId": finding.rule.code,
            "ruleIndex": numbers[finding.name],
            "level": finding.severity,
            "message": {"text": f"{finding.message}; {finding.advice}"},
            "locations": [_build_sarif_location(finding.location)],
            "partialFingerprints": {"evalkitFinding/v1": hashlib.sha256(key).hexdigest()[:32]},
        }
        results.append({**result, "relatedLocations": related} if related else result)
    run = {
        "tool": {"driver": {"name": "evalkit lint", "version": version, "rules": rules}},
        "columnKind": "unicodeCodePoints",
        "results": results,
    }
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2)


def _build_sarif_location(location: Location) -> dict[str, Any]:
    physical: dict[str, Any] = {"artifactLocation": {"uri": quote(location.file), "uriBaseId": "%SRCROOT%"}}
    if location.line:
        physical["region"] = {"startLine": location.line, "startColumn": location.column or 1}
    return {"physicalLocation": physical}


FORMATS: tuple[str, ...] = ("text", "json", "github", "sarif")


def render_report(report: LintReport, form: str, *, version: str) -> str:
    """Write the report in one of FORMATS."""
    writers: dict[str, Callable[[LintReport], str]] = {"text": as_text, "json": as_json, "github": as_github}
    return as_sarif(report, version) if form == "sarif" else writers[form](report)
