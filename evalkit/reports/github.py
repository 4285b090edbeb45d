"""Annotations for GitHub: one workflow command per case that did not pass, at the line of the YAML file.

The runner shows ten errors and ten warnings per step and drops the rest without a word, so the last one says how many
are left.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from evalkit.model.run import Run
from evalkit.model.verdict import ERROR, FAILED, Verdict
from evalkit.reports.hostile import visible, visible_lines
from evalkit.reports.redacting import Redact, redacted

MOST = 10  # errors, and again warnings, that GitHub shows of one step
_LONGEST = 2000
_PLACE = re.compile(r"(?P<file>.+?):(?P<line>\d+)(?::(?P<column>\d+))?")


def github_annotations(run: Run, *, folder: str = "", most: int = MOST, redact: Redact | None = None) -> list[str]:
    """Lines that the runner reads from a step's output: ``::error file=...,line=...,col=...,title=...::message``.

    Cases that failed or could not be measured are errors, `must_pass` ones first; quarantined ones are warnings.
    `folder` is the project's path from the repository's root, for projects that are only a part of one.
    """
    bad = [verdict for verdict in redacted(run, redact).verdicts if verdict.status in (FAILED, ERROR)]
    errors = sorted((v for v in bad if v.quarantined is None), key=lambda verdict: not verdict.must_pass)
    warnings = [verdict for verdict in bad if verdict.quarantined is not None]
    return _commands("error", errors, folder, most) + _commands("warning", warnings, folder, most)


def _commands(level: str, verdicts: list[Verdict], folder: str, most: int) -> list[str]:
    if len(verdicts) <= most:
        return [_command(level, verdict, folder) for verdict in verdicts]
    left = len(verdicts) - most + 1
    last = f"::{level} title=evalkit::{left} more cases; see the step summary or the run file"
    return [*(_command(level, verdict, folder) for verdict in verdicts[: most - 1]), last]


def _command(level: str, verdict: Verdict, folder: str) -> str:
    file, line, column = _place(verdict)
    title = f"{PurePosixPath(verdict.case_id).stem} {'failed' if verdict.status == FAILED else 'could not be measured'}"
    pairs = {
        "file": (PurePosixPath(folder) / file).as_posix() if file else "",
        "line": line,
        "col": column,
        "title": title,
    }
    said = ",".join(f"{key}={_property(visible(value))}" for key, value in pairs.items() if value)
    return f"::{level} {said}::{_data(_message(verdict))}"


def _place(verdict: Verdict) -> tuple[str, str, str]:
    for reason in verdict.reasons:
        found = _PLACE.fullmatch(reason.location)
        if found is not None:
            return found["file"], found["line"], found["column"] or ""
    return verdict.path or verdict.case_id, "1", ""


def _message(verdict: Verdict) -> str:
    said = dict.fromkeys(reason.message or reason.code for reason in verdict.reasons)
    text = visible_lines("\n".join(said) or verdict.summary or verdict.status)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
