"""Old findings that are known: a file of them, so that only new ones are told."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from evalkit.errors import UsageError
from evalkit.lint.finding import Finding
from evalkit.lint.rules.table import RULES_BY_NAME

VERSION = 1
FindingKey = tuple[str, str, str]


def read_baseline(path: Path) -> Counter[FindingKey]:
    """Rule, file and message of each known finding, and how often it was there. Lines do not count: they move."""
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
    """The file that makes `findings` known ones."""
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
    """The new findings, the number of known ones, and the number of known ones that are gone."""
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
