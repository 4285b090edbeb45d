"""`evalkit merge`: the runs of shards as one run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from evalkit.errors import UsageError
from evalkit.gate.rates import names
from evalkit.model.run import Run
from evalkit.reports import load_run


def merged(paths: Sequence[Path]) -> Run:
    """All verdicts of the runs at `paths`, in their order.

    UsageError for shards that are missing or told twice, and for a case that is in two of the runs.
    """
    runs = [load_run(path) for path in paths]
    shards = [run.shard for run in runs]
    if any(shards):
        _refuse_gaps(paths, shards)
    _refuse_overlaps(paths, runs)
    return Run(
        verdicts=tuple(verdict for run in runs for verdict in run.verdicts),
        collected=max(run.collected for run in runs) if any(shards) else sum(run.collected for run in runs),
        selected=tuple(case_id for run in runs for case_id in run.selected),
        started=min(run.started for run in runs),
        wall_s=max(run.wall_s for run in runs),
        evalkit=runs[0].evalkit,
        interrupted=any(run.interrupted for run in runs),
        metadata={"merged": [path.name for path in paths]},
    )


def _refuse_gaps(paths: Sequence[Path], shards: Sequence[str | None]) -> None:
    found: dict[int, Path] = {}
    totals = set()
    for path, shard in zip(paths, shards, strict=True):
        parts = re.fullmatch(r"(\d+)/(\d+)", shard or "")
        if parts is None:
            raise UsageError(f"{path}: is no shard, and the others are; merge the runs of one sharded suite")
        number, total = int(parts[1]), int(parts[2])
        totals.add(total)
        if number in found:
            raise UsageError(f"shard {shard} is told twice: {found[number]} and {path}")
        found[number] = path
    if len(totals) > 1:
        raise UsageError(f"these are shards of different splits: {', '.join(f'n/{total}' for total in sorted(totals))}")
    missing = [f"{number}/{max(totals)}" for number in range(1, max(totals) + 1) if number not in found]
    if missing:
        raise UsageError(f"shards are missing: {names(missing)}; without them nothing can be said of the whole")


def _refuse_overlaps(paths: Sequence[Path], runs: Sequence[Run]) -> None:
    owner: dict[str, Path] = {}
    for path, run in zip(paths, runs, strict=True):
        for case_id in dict.fromkeys((*run.selected, *(verdict.case_id for verdict in run.verdicts))):
            if case_id in owner:
                raise UsageError(f"{case_id} is in two of the runs: {owner[case_id]} and {path}")
            owner[case_id] = path
