"""The commands on runs: report, export, compare, merge, durations, gate, comment."""

from __future__ import annotations

import os
from pathlib import Path

import click

from evalkit.cli.comment import build_marker, find_target, publish
from evalkit.cli.gate import describe_changes, describe_decision, describe_gate
from evalkit.cli.merge import merge_runs
from evalkit.cli.project import OUTPUT, write_output
from evalkit.cli.report import Publication, render_run
from evalkit.reports.run_file import read_durations, write_durations
from evalkit.reports.table import REPORTS
from evalkit.text.format import escape_json_commands

RUN = click.argument("run", type=click.Path(path_type=Path), default=".evalkit/last-run.json")


@click.command(short_help="Render a run file again.")
@RUN
@click.option(
    "--format",
    "form",
    type=click.Choice(["trace", "json", *REPORTS]),
    default="trace",
    show_default=True,
)
@click.option("--failed", is_flag=True, help="Only the cases that did not pass (trace and json).")
@click.option("--conversation", is_flag=True, help="Show the turns whole (trace).")
@click.option("--baseline", type=click.Path(path_type=Path), help="Compare with this run file (markdown, html).")
@click.option("--title", default="evalkit", show_default=True, help="The report's heading (markdown, html).")
@OUTPUT
def report(run: Path, form: str, baseline: Path | None, title: str, output: Path | None, **shown: bool) -> None:
    """Render a run file again."""
    if form in REPORTS:
        text = Publication(run, baseline).render(form, title).removesuffix("\n")
    else:
        text = render_run(run, form, to_terminal=output is None, **shown)
    if output is None:
        is_json = form == "json" or (form in REPORTS and REPORTS[form].is_json)
        click.echo(escape_json_commands(text) if is_json else text)
    else:
        write_output(output, text)


@click.command("export", short_help="Send a run as OpenTelemetry spans.")
@RUN
@click.option("--to", "endpoint", metavar="URL", required=True, help="An OTLP/HTTP endpoint: http://localhost:4318")
@click.option("--content/--no-content", default=True, help="Send what was said, called and answered, too.")
def export_command(run: Path, endpoint: str, *, content: bool) -> None:
    """Send a run as OpenTelemetry spans, by the conventions for generative AI (extra `otel`).

    Headers and certificates come from the variables of the OpenTelemetry SDK, such as OTEL_EXPORTER_OTLP_HEADERS.
    """
    click.echo(Publication(run, None).send(endpoint, content=content))


@click.command(short_help="Say what changed between two runs, case by case.")
@click.argument("base", type=click.Path(path_type=Path))
@click.argument("head", type=click.Path(path_type=Path), default=".evalkit/last-run.json")
def compare(base: Path, head: Path) -> None:
    """Say what changed from the run BASE to the run HEAD, case by case."""
    for line in describe_changes(base, head):
        click.echo(line)


@click.command(short_help="Join the run files of shards, and gate on the whole.")
@click.argument("runs", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), required=True, help="The joined run.")
def merge(runs: tuple[Path, ...], output: Path) -> int:
    """Join the run files of shards into one, and gate on the whole. Overlaps and gaps are refused."""
    result = merge_runs(runs, output)
    head = f"joined {len(runs)} run{'s' * (len(runs) > 1)}: {result.verdicts} verdicts in {output}"
    for line in (head, *describe_decision(result.decision)):
        click.echo(line)
    return result.decision.exit_status


@click.command(short_help="Keep how long cases took, to balance shards.")
@click.argument("runs", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, dir_okay=False), required=True, help="A small JSON file."
)
def durations(runs: tuple[Path, ...], output: Path) -> None:
    """Keep how long each case of RUNS took, to balance shards by: `--evalkit-shard I/N --evalkit-durations FILE`."""
    seconds_by_case = read_durations(runs)
    write_durations(output, seconds_by_case)
    click.echo(f"{len(seconds_by_case)} durations, {sum(seconds_by_case.values()):.3g} s in all, in {output}")


@click.command(short_help="Decide the gate on a run file.")
@RUN
@click.option("--min-pass-rate", metavar="PERCENT", help="How many percent of the measured cases must pass.")
@click.option("--max-errors", metavar="N", help="How many cases may end without being measured.")
@click.option("--baseline", type=click.Path(path_type=Path), help="Compare with this run file.")
@click.option("--no-regressions", is_flag=True, default=None, help="No case that passed in the baseline may fail.")
def gate(run: Path, baseline: Path | None, **options: object) -> int:
    """Decide the gate on a run file, by [tool.evalkit] and the options; exits with 0, 1 or 6."""
    lines, status = describe_gate(run, options, baseline)
    for line in lines:
        click.echo(line)
    return status


@click.command(short_help="Write a run's report as one comment on a pull request.")
@RUN
@click.option("--baseline", type=click.Path(path_type=Path), help="Say what changed since this run file.")
@click.option("--title", default="evalkit", show_default=True, help="The comment's heading.")
@click.option("--name", default="evalkit", show_default=True, help="Tells the comments of several suites apart.")
@click.option("--url", default="", help="The address of the full report.")
@click.option("--repo", metavar="OWNER/NAME", help="By default the one whose workflow this is.")
@click.option("--pr", type=int, metavar="NUMBER", help="By default the one that the workflow runs for.")
def comment(
    run: Path, baseline: Path | None, title: str, name: str, url: str, repo: str | None, pr: int | None
) -> None:
    """Write the report of RUN as one comment on a GitHub pull request, or update it; GITHUB_TOKEN is the token.

    Where the token may not comment, the report goes to the step summary.
    """
    marker, target = build_marker(name), find_target(os.environ, repo, pr)
    report = Publication(run, baseline)
    click.echo(
        publish(
            target, marker, lambda limit, first: report.to_markdown(title=title, limit=limit, marker=first, url=url)
        )
    )


COMMANDS = (report, export_command, compare, merge, durations, gate, comment)
