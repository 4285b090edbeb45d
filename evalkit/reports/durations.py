"""How long each case of an earlier run took: what shards are balanced by.

They come from a run file, from a journal, or from a small JSON file ``{"case id": seconds}`` that a project can keep.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from evalkit.errors import UsageError
from evalkit.model.run import Run
from evalkit.model.transcript import Transcript
from evalkit.model.verdict import NOT_RUN, Verdict
from evalkit.reports.run_file import load_run

_DIGITS = 6


def measure_durations(run: Run) -> dict[str, float]:
    """Case id -> what it took of the machine's time: all its repeats, and live models' time, but not recorded time."""
    return {
        verdict.case_id: round(_sum_case_seconds(verdict), _DIGITS)
        for verdict in run.verdicts
        if verdict.status != NOT_RUN
    }


def _sum_case_seconds(verdict: Verdict) -> float:
    transcripts = [run.transcript for run in verdict.runs or (verdict,)] + [run.transcript for run in verdict.faults]
    return sum(map(_compute_seconds, transcripts))


def _compute_seconds(transcript: Transcript) -> float:
    timing = transcript.timing
    if timing is None:
        return 0.0
    waited_ms = timing.model_ms if transcript.cassette is None else 0.0  # a cassette's turns come at once
    return (timing.overhead_ms + waited_ms) / 1000


def read_durations(paths: Iterable[Path]) -> dict[str, float]:
    """Of the files at `paths`; a later one wins. UsageError for what is neither a run file nor a file of durations."""
    durations: dict[str, float] = {}
    for path in paths:
        table = _read_table(path)
        durations |= measure_durations(load_run(path)) if table is None else _check_table(table, path)
    return durations


def _read_table(path: Path) -> Mapping[str, Any] | None:
    """A file of durations; None for anything else, which is to be a run."""
    if path.suffix == ".jsonl":
        return None
    try:
        data = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return data if isinstance(data, dict) and "verdicts" not in data else None


def _check_table(table: Mapping[str, Any], path: Path) -> dict[str, float]:
    for case_id, value in table.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < float("inf"):
            raise UsageError(f"{path}: {case_id!r}: {value!r} is not a number of seconds, 0 or more")
    return {case_id: float(value) for case_id, value in table.items()}


def write_durations(path: Path, seconds: Mapping[str, float]) -> None:
    """As a small file with a line per case, in the order of their ids, so that a change of it reads well."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(dict(sorted(seconds.items())), indent=0) + "\n", "ascii", newline="\n")
