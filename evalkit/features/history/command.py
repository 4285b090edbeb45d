"""`evalkit trend`."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import click

from evalkit.features.history.history import KEPT_RUNS, History, describe_history, find_trends, list_comparable
from evalkit.hosts.commands.api import format_examples
from evalkit.hosts.reports.api import load_run
from evalkit.records.codec import to_plain_json
from evalkit.text.format import escape_controls, escape_json_commands

DEFAULT_HISTORY = Path(".evalkit/history.sqlite")


@click.command(
    short_help="Say how the suite does over many runs, and which cases changed.",
    epilog=format_examples("evalkit trend", "evalkit trend nightly-*.json --branch main --last 50"),
)
@click.argument("runs", type=click.Path(path_type=Path), nargs=-1)
@click.option(
    "--history",
    "file",
    type=click.Path(path_type=Path, dir_okay=False),
    default=DEFAULT_HISTORY,
    show_default=True,
    help="The history, as --evalkit-history keeps it.",
)
@click.option("--branch", help="Only runs of this branch.")
@click.option("--model", metavar="KIND:MODEL", help="Only runs of this live model.")
@click.option("--last", type=click.IntRange(1), default=20, show_default=True, help="How many runs to look at.")
@click.option("--recent", type=click.IntRange(1), default=5, show_default=True, help="How many of them are recent.")
@click.option(
    "--keep", type=click.IntRange(1), default=KEPT_RUNS, show_default=True, help="Runs that are kept at most."
)
@click.option("--json", "as_json", is_flag=True, help="Print the runs and trends as JSON.")
def trend(
    runs: tuple[Path, ...],
    file: Path,
    *,
    branch: str | None,
    model: str | None,
    last: int,
    recent: int,
    keep: int,
    as_json: bool,
) -> None:
    """Say how the suite does over many runs: rates, time and cost, newly flaky and newly broken cases, recovered ones.

    RUNS are run files, or histories of other machines, which are first added to the history.
    """
    history = History(file)
    for path in runs:
        if path.suffix in (".sqlite", ".db"):
            click.echo(f"{path}: {history.merge(History(path), keep=keep)} runs added", err=True)
        else:
            added = history.add(load_run(path), keep=keep)
            click.echo(f"{path}: {'added' if added else 'was there'}", err=True)
    found = history.read_runs(branch=branch, model=model, last=last)
    if as_json:
        trends = find_trends(list_comparable(found), recent)
        click.echo(escape_json_commands(json.dumps(to_plain_json({"runs": found, "trends": trends}), indent=2)))
        return
    if not found and (known := history.read_runs(last=last)):
        branches = ", ".join(sorted({run.branch or "none" for run in known}))
        models = ", ".join(sorted({run.model or "none" for run in known}))
        click.echo(f"no run of that kind is in the history; its last runs are of branches {branches}, models {models}")
        return
    for line in describe_history(found, recent=recent, today=datetime.now(UTC).date()):
        click.echo(escape_controls(line, keep="\n"))
