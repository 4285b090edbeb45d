"""Annotations for GitHub: one workflow command per case that did not pass, at the line of the YAML file.

The runner shows ten errors and ten warnings per step and drops the rest without a word, so the last one says how many
are left.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from evalkit.model.run import Run
from evalkit.model.verdict import ERROR, FAILED, Verdict
from evalkit.reports.serialization import Redact, redact_run
from evalkit.text.escape import escape_controls, escape_lines

MOST = 10  # errors, and again warnings, that GitHub shows of one step
_LONGEST = 2000
_PLACE = re.compile(r"(?P<file>.+?):(?P<line>\d+)(?::(?P<column>\d+))?")


def render_github_annotations(
    run: Run, *, folder: str = "", limit: int = MOST, redact: Redact | None = None
) -> list[str]:
    """Return lines that the runner reads from a step's output: ``::error
    file=...,line=...,col=...,title=...::message``.

    Cases that failed or could not be measured are errors, `must_pass` ones first; quarantined ones are warnings.
    `folder` is the project's path from the repository's root, for projects that are only a part of one.
    """
    bad = [verdict for verdict in redact_run(run, redact).verdicts if verdict.status in (FAILED, ERROR)]
    errors = sorted((v for v in bad if v.quarantined is None), key=lambda verdict: not verdict.must_pass)
    warnings = [verdict for verdict in bad if verdict.quarantined is not None]
    return _build_commands("error", errors, folder, limit) + _build_commands("warning", warnings, folder, limit)


def _build_commands(level: str, verdicts: list[Verdict], folder: str, limit: int) -> list[str]:
    if len(verdicts) <= limit:
        return [_build_command(level, verdict, folder) for verdict in verdicts]
    remaining = len(verdicts) - limit + 1
    last = f"::{level} title=evalkit::{remaining} more cases; see the step summary or the run file"
    return [*(_build_command(level, verdict, folder) for verdict in verdicts[: limit - 1]), last]


def _build_command(level: str, verdict: Verdict, folder: str) -> str:
    matches = (_PLACE.fullmatch(reason.location) for reason in verdict.reasons)
    place = next((match for match in matches if match is not None), None)
    file, line, column = (verdict.path or verdict.case_id, "1", "") if place is None else place.groups("")
    title = f"{PurePosixPath(verdict.case_id).stem} {'failed' if verdict.status == FAILED else 'could not be measured'}"
    pairs = {
        "file": (PurePosixPath(folder) / file).as_posix() if file else "",
        "line": line,
        "col": column,
        "title": title,
    }
    properties = ",".join(
        f"{key}={_escape_data(escape_controls(value)).replace(':', '%3A').replace(',', '%2C')}"
        for key, value in pairs.items()
        if value
    )
    messages = dict.fromkeys(reason.message or reason.code for reason in verdict.reasons)
    text = escape_lines("\n".join(messages) or verdict.summary or verdict.status)
    return f"::{level} {properties}::{_escape_data(text if len(text) <= _LONGEST else f'{text[:_LONGEST]}…')}"


def _escape_data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
