"""`evalkit merge`: the runs of shards as one run. Verdicts go from file to file; few are in memory."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evalkit.cli.gating import baseline_run, policy
from evalkit.errors import UsageError
from evalkit.execution.shards import fingerprint
from evalkit.gate.counts import outcome_of
from evalkit.gate.decision import decide_outcomes
from evalkit.gate.rates import cases, names
from evalkit.model.run import GateDecision, Run
from evalkit.reports.runfile import write_run
from evalkit.reports.stored import StoredRun
from evalkit.stats.accounting import Tally


@dataclass(frozen=True, slots=True)
class Merged:
    """What came of it: how many verdicts, and the gate's decision on the whole."""

    verdicts: int
    decision: GateDecision


def merge_runs(paths: Sequence[Path], output: Path) -> Merged:
    """Write one run file with all verdicts of those at `paths`; shards in the order of what was split.

    UsageError for runs of different commits, for a case that is in two of the runs, and for shards that are missing,
    told twice, or not of one selection and settings. Nothing is written then.
    """
    with ExitStack() as stack:
        stored = [stack.enter_context(closing(StoredRun(path))) for path in paths]
        runs = [each.run for each in stored]
        _refuse_other_commits(paths, runs)
        are_shards = any(run.shard for run in runs)
        if are_shards:
            _refuse_gaps(paths, [run.shard for run in runs])
            _refuse_other_settings(paths, runs)
            _refuse_other_selections(paths, runs)
        _refuse_overlaps(paths, runs)
        if are_shards:
            _refuse_losses(runs)
        return _join(stored, output)


def _join(stored: Sequence[StoredRun], output: Path) -> Merged:
    outcomes, tally = [], Tally()
    where: dict[str, tuple[StoredRun, int]] = {}
    for each in stored:
        for index, verdict in enumerate(each.verdicts()):
            outcomes.append(outcome_of(verdict))
            tally.add(verdict)
            where[verdict.case_id] = (each, index)
    runs = [each.run for each in stored]
    selected = _in_order(runs)
    collected = max(run.collected for run in runs) if runs[0].shard else sum(run.collected for run in runs)
    part = any(run.metadata.get("part") for run in runs)
    baseline = baseline_run(None)
    decision = decide_outcomes(
        outcomes,
        policy({}),
        selected=selected,
        collected=collected,
        part=part,
        baseline=None if baseline is None else [outcome_of(verdict) for verdict in baseline.verdicts],
    )
    whole = Run(
        collected=collected,
        selected=selected,
        started=min(run.started for run in runs),
        wall_s=max(run.wall_s for run in runs),
        evalkit=runs[0].evalkit,
        interrupted=any(run.interrupted for run in runs),
        metadata={
            "gate": decision,
            "accounting": tally.result().to_json(),
            **_common(runs),
            "part": part,
            "merged": [each.path.name for each in stored],
        },
    )
    order = [place for case_id in dict.fromkeys((*selected, *where)) if (place := where.get(case_id)) is not None]
    write_run(output, whole, (each.line(index) for each, index in order))
    return Merged(len(order), decision)


def _in_order(runs: Sequence[Run]) -> tuple[str, ...]:
    """All selected cases: those of shards as they stood before the split, others run by run."""
    placed = []
    for number, run in enumerate(runs):
        places = run.selection.places if run.shard and run.selection else ()
        last = places[-1] if places else 0
        for index, case_id in enumerate(run.selected):
            place = places[index] if index < len(places) else last
            placed.append((place if places else number, case_id))
    return tuple(case_id for _, case_id in sorted(placed, key=lambda each: each[0]))


def _common(runs: Sequence[Run]) -> dict[str, Any]:
    """What the runs were told, as far as it is the same."""
    first = runs[0].metadata
    keys = ("model", "commit", "settings")
    return {
        key: first.get(key) if all(run.metadata.get(key) == first.get(key) for run in runs) else None for key in keys
    }


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
        for case_id in dict.fromkeys(run.selected):
            if case_id in owner:
                raise UsageError(f"{case_id} is in two of the runs: {owner[case_id]} and {path}{_split_by(run)}")
            owner[case_id] = path


def _split_by(run: Run) -> str:
    return "; were the shards split by different --evalkit-durations?" if run.shard else ""


def _refuse_other_commits(paths: Sequence[Path], runs: Sequence[Run]) -> None:
    known = [
        (path, run.metadata["commit"]) for path, run in zip(paths, runs, strict=True) if run.metadata.get("commit")
    ]
    for path, commit in known[1:]:
        if commit != known[0][1]:
            first, begun = known[0]
            raise UsageError(
                f"{first} is of commit {begun[:12]}, and {path} of {commit[:12]}; merge runs of one commit"
            )


def _refuse_other_settings(paths: Sequence[Path], runs: Sequence[Run]) -> None:
    first = _told(runs[0])
    for path, run in zip(paths[1:], runs[1:], strict=True):
        told = _told(run)
        differing = [key for key in dict.fromkeys((*first, *told)) if first.get(key) != told.get(key)]
        if differing:
            shown = ", ".join(f"{key} {first.get(key)!r} and {told.get(key)!r}" for key in differing)
            raise UsageError(f"{paths[0]} and {path} were not run alike: {shown}; merge shards of one run")


def _told(run: Run) -> Mapping[str, Any]:
    settings = run.metadata.get("settings") or {}
    return {"evalkit": run.evalkit, "model": run.metadata.get("model"), **settings}


def _refuse_other_selections(paths: Sequence[Path], runs: Sequence[Run]) -> None:
    """Shards know what was split; only one of which no process came to its end may not."""
    known = [(path, run.selection) for path, run in zip(paths, runs, strict=True) if run.selection is not None]
    if not known:
        raise UsageError("none of these shards says what was split; run them again")
    path, whole = known[0]
    for other, selection in known[1:]:
        if (selection.count, selection.fingerprint) != (whole.count, whole.fingerprint):
            raise UsageError(
                f"{path} is a shard of {cases(whole.count)} ({whole.fingerprint}), and {other} of "
                f"{cases(selection.count)} ({selection.fingerprint}); shards select the same cases: the same files, "
                "paths, -k and -m"
            )
        if whole.content and selection.content and selection.content != whole.content:
            raise UsageError(
                f"{path} and {other} are of different versions of the case files or suites; merge shards of one version"
            )


def _refuse_losses(runs: Sequence[Run]) -> None:
    whole = next(run.selection for run in runs if run.selection is not None)
    joined = [case_id for run in runs for case_id in run.selected]
    if len(joined) != whole.count or fingerprint(joined) != whole.fingerprint:
        raise UsageError(
            f"the shards hold {len(joined)} of the {cases(whole.count)} that were split; "
            "were they split by different --evalkit-durations?"
        )
