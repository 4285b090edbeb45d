"""The commands on runs: report, compare, gate, merge, comment, cache; and those that these replace."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

import click

from evalkit.cli.comment import build_marker, find_target, publish
from evalkit.cli.gate import (
    build_policy,
    describe_changes,
    describe_decision,
    describe_gate,
    find_doubts,
    load_baseline,
    merge_runs,
)
from evalkit.errors import UsageError
from evalkit.gate.decision import decide
from evalkit.hooks import Option, Options, configure_features, list_options
from evalkit.hosts.commands.api import OUTPUT, build_redactor, format_examples, open_project, write_output
from evalkit.hosts.reports.api import build_sections
from evalkit.hosts.reports.markdown import LIMIT, MarkdownOptions, render_markdown
from evalkit.hosts.reports.run_file import load_run, read_durations, write_durations
from evalkit.hosts.reports.summary import title_cases
from evalkit.hosts.reports.table import REPORTS, ReportInput, send_spans
from evalkit.hosts.reports.trace import TraceOptions, build_trace_lines, join_spans, render_ansi
from evalkit.models.cassettes.paths import CACHE_FOLDER
from evalkit.models.cassettes.reply_cache import list_entries, prune_entries
from evalkit.records.codec import to_plain_json
from evalkit.records.run import GateDecision, Run
from evalkit.records.verdict import PASSED
from evalkit.text.format import escape_json_commands, fit_to_encoding, format_count


class Publication:
    """A run, what it is compared with, and the decision on it by [tool.evalkit] of the current folder."""

    def __init__(self, run: Path, baseline: Path | None) -> None:
        self.run: Run = load_run(run)
        self.baseline: Run | None = load_baseline(baseline)
        self.decision: GateDecision = decide(
            self.run, build_policy({}), self.baseline, doubts=list(find_doubts(run, self.run))
        )
        self.redact = build_redactor(Path.cwd())

    def to_markdown(self, *, title: str, limit: int, marker: str = "", url: str = "") -> str:
        """The report as Markdown, below `limit` bytes."""
        options = MarkdownOptions(title=title, limit=limit, marker=marker, report_url=url)
        return render_markdown(self.run, self.decision, self.baseline, options, self.redact)

    def render(self, name: str, title: str, files: Mapping[str, Path]) -> str:
        """Return the report `name` of REPORTS. `files` are options of features, which may add to a page."""
        parts = configure_features(Options(root=Path.cwd(), read=files.get, name_source=lambda option: f"--{option}"))
        has_sections = "sections" in REPORTS[name].needs
        source = ReportInput(
            run=self.run,
            decision=self.decision,
            baseline=self.baseline,
            title=title,
            redact=self.redact,
            sections=build_sections(parts, self.run, self.redact) if has_sections else {},
            folder=find_folder_in_repository(),
        )
        return "".join(REPORTS[name].render(source))

    def send(self, endpoint: str, *, content: bool) -> str:
        """Send the run's spans to an OTLP/HTTP endpoint. Return a line that says how many were taken."""
        return f"{endpoint} took {send_spans(self.run, endpoint, self.redact, content=content)} spans"


def find_folder_in_repository() -> str:
    """Return the current folder relative to the checkout on a GitHub runner, as annotations name files; else ""."""
    root = os.environ.get("GITHUB_WORKSPACE")
    if not root or not Path.cwd().is_relative_to(root):
        return ""
    folder = Path.cwd().relative_to(root).as_posix()
    return "" if folder == "." else folder


def render_run(run: Path, form: str, *, failed: bool, conversation: bool, to_terminal: bool) -> str:
    """Return the run as traces, or as JSON; `to_terminal` colours traces if standard output shows colours."""
    loaded = load_run(run)
    verdicts = [verdict for verdict in loaded.verdicts if not failed or verdict.status != PASSED]
    if form == "json":
        return json.dumps(
            to_plain_json({**loaded.to_json(), "verdicts": [verdict.to_json() for verdict in verdicts]}), indent=2
        )
    columns = shutil.get_terminal_size().columns
    is_terminal = to_terminal and sys.stdout.isatty()
    options = TraceOptions(
        width=columns if to_terminal else TraceOptions().width,
        breaks_at=columns if is_terminal else None,
        conversation=conversation,
        titles=title_cases(verdict.case_id for verdict in loaded.verdicts),
        is_live=loaded.metadata.get("model") is not None,
    )
    trace_lines = [line for verdict in verdicts for line in build_trace_lines(verdict, options)]
    if is_terminal:
        return render_ansi(trace_lines, sys.stdout.encoding)
    return fit_to_encoding("\n".join(map(join_spans, trace_lines)), sys.stdout.encoding if to_terminal else None)


class ReportCommand(click.Command):
    """A command with the options of features for reports."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Called by click for the help, and to read the command line."""
        path = click.Path(path_type=Path, dir_okay=False)
        return super().get_params(ctx) + [
            click.Option(
                [f"--{option.name}"],
                type=path,
                default=option.report_default or None,
                show_default=bool(option.report_default),
                help=option.report_help,
            )
            for option in list_report_options()
        ]


def list_report_options() -> list[Option]:
    """Return the options of features that reports have, too."""
    return [option for option in list_options().values() if option.report_help]


RUN = click.argument("run", type=click.Path(path_type=Path), default=".evalkit/last-run.json")


@click.command(
    cls=ReportCommand,
    short_help="Render a run file again.",
    epilog=format_examples(
        "evalkit report --failed",
        "evalkit report --format html -o run.html",
        "evalkit report --to http://localhost:4318",
    ),
)
@RUN
@click.option(
    "--format",
    "form",
    type=click.Choice(["trace", "json", *REPORTS]),
    help="What to make of it.  [default: trace]",
)
@click.option("--failed", is_flag=True, help="Only the cases that did not pass (trace and json).")
@click.option("--conversation", is_flag=True, help="Show the turns whole (trace).")
@click.option("--baseline", type=click.Path(path_type=Path), help="Compare with this run file (markdown, html).")
@click.option("--title", default="evalkit", show_default=True, help="The report's heading (markdown, html).")
@click.option("--to", "endpoint", metavar="URL", help="Send it as OpenTelemetry spans to this OTLP/HTTP endpoint.")
@click.option("--content/--no-content", default=True, help="Send what was said, called and answered, too (--to).")
@OUTPUT
def report(
    run: Path,
    form: str | None,
    baseline: Path | None,
    title: str,
    endpoint: str | None,
    output: Path | None,
    *,
    failed: bool,
    conversation: bool,
    content: bool,
    **files: Path | None,
) -> None:
    """Render a run file again, or send it to where your traces are (extra `otel`).

    Headers and certificates of --to come from the variables of the OpenTelemetry SDK, such as
    OTEL_EXPORTER_OTLP_HEADERS.
    """
    if endpoint is not None:
        if form not in (None, "otel") or output is not None:
            raise UsageError(f"--to sends spans; leave {'-o' if output is not None else f'--format {form}'} out")
        click.echo(Publication(run, None).send(endpoint, content=content))
        return
    if form in REPORTS:
        defaults = {option.name: Path(option.report_default) for option in list_report_options()}
        given = {name: file for name, file in files.items() if file and (file != defaults[name] or file.is_file())}
        text = Publication(run, baseline).render(form, title, given).removesuffix("\n")
    else:
        text = render_run(run, form or "trace", failed=failed, conversation=conversation, to_terminal=output is None)
    if output is None:
        is_json = form == "json" or (form in REPORTS and REPORTS[form].is_json)
        click.echo(escape_json_commands(text) if is_json else text)
    else:
        write_output(output, text)


@click.command(
    short_help="Say what changed between two runs, case by case.", epilog=format_examples("evalkit compare main.json")
)
@click.argument("base", type=click.Path(path_type=Path))
@click.argument("head", type=click.Path(path_type=Path), default=".evalkit/last-run.json")
def compare(base: Path, head: Path) -> None:
    """Say what changed from the run BASE to the run HEAD, case by case."""
    for line in describe_changes(base, head):
        click.echo(line)


@click.command(
    short_help="Join the run files of shards, and gate on the whole.",
    epilog=format_examples("evalkit merge shard-*.json -o run.json --durations durations.json"),
)
@click.argument("runs", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), required=True, help="The joined run.")
@click.option(
    "--durations",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Keep here how long each case took, for `--evalkit-durations`.",
)
def merge(runs: tuple[Path, ...], output: Path, durations: Path | None) -> int:
    """Join the run files of shards into one, and gate on the whole. Overlaps and gaps are refused."""
    result = merge_runs(runs, output)
    click.echo(f"joined {format_count(len(runs), 'run')}: {result.verdicts} verdicts in {output}")
    if durations is not None:
        click.echo(keep_durations(runs, durations))
    for line in describe_decision(result.decision):
        click.echo(line)
    return result.decision.exit_status


def keep_durations(runs: tuple[Path, ...], output: Path) -> str:
    """Write how long each case of `runs` took. Return a line that says so."""
    seconds_by_case = read_durations(runs)
    write_durations(output, seconds_by_case)
    return f"{len(seconds_by_case)} durations, {sum(seconds_by_case.values()):.3g} s in all, in {output}"


@click.command(
    short_help="Decide the gate on a run file.",
    epilog=format_examples("evalkit gate --min-pass-rate 95 --baseline main.json --no-regressions"),
)
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


@click.command(
    short_help="Write a run's report as one comment on a pull request.",
    epilog=format_examples("evalkit comment --dry-run", "evalkit comment --baseline main.json --pr 12"),
)
@RUN
@click.option("--baseline", type=click.Path(path_type=Path), help="Say what changed since this run file.")
@click.option("--title", default="evalkit", show_default=True, help="The comment's heading.")
@click.option("--name", default="evalkit", show_default=True, help="Tells the comments of several suites apart.")
@click.option("--url", default="", help="The address of the full report.")
@click.option("--repo", metavar="OWNER/NAME", help="By default the one whose workflow this is.")
@click.option("--pr", type=int, metavar="NUMBER", help="By default the one that the workflow runs for.")
@click.option("--dry-run", is_flag=True, help="Print the comment, and send nothing: no token is needed.")
def comment(
    run: Path,
    baseline: Path | None,
    title: str,
    name: str,
    url: str,
    repo: str | None,
    pr: int | None,
    *,
    dry_run: bool,
) -> None:
    """Write the report of RUN as one comment on a GitHub pull request, or update it; GITHUB_TOKEN is the token.

    Where the token may not comment, the report goes to the step summary.
    """
    marker, target = build_marker(name), find_target(os.environ, repo, pr)
    report = Publication(run, baseline)

    def render(limit: int, first: str) -> str:
        return report.to_markdown(title=title, limit=limit, marker=first, url=url)

    if dry_run:
        place = target if isinstance(target, str) else f"{target.repository}, pull request {target.number}"
        verb = "no comment would be written" if isinstance(target, str) else "this comment would be written"
        click.echo(f"{verb}: {place}", err=True)
        click.echo(render(LIMIT, marker), nl=False)
    else:
        click.echo(publish(target, marker, render))


@click.command(
    short_help="Show or clear the cache of live replies.",
    epilog=format_examples("evalkit cache", "evalkit cache clear"),
)
@click.argument("action", type=click.Choice(["show", "clear"]), default="show")
def cache(action: str) -> None:
    """Show how much the cache of `pytest --evalkit --evalkit-cache` holds, or clear it.

    The cache is the folder .evalkit/cache of the project around the current folder.
    """
    root = open_project().root
    size = sum(status.st_size for _, status in list_entries(root))
    count = prune_entries(root, -1) if action == "clear" else sum(1 for _ in list_entries(root))
    replies = "1 reply" if count == 1 else f"{count:,} replies"
    click.echo(f"{'deleted ' if action == 'clear' else ''}{replies}, {size:,} bytes in {CACHE_FOLDER.as_posix()}")


COMMANDS = (report, compare, gate, merge, comment, cache)


# Names of before, which work and say what has taken their place.


@click.command("export", short_help="Now `evalkit report --to URL`.", hidden=True)
@RUN
@click.option("--to", "endpoint", metavar="URL", required=True, help="An OTLP/HTTP endpoint: http://localhost:4318")
@click.option("--content/--no-content", default=True, help="Send what was said, called and answered, too.")
def export_command(run: Path, endpoint: str, *, content: bool) -> None:
    """Send a run as OpenTelemetry spans. Now `evalkit report --to URL`."""
    click.echo("note: `evalkit export` is now `evalkit report --to URL`", err=True)
    click.echo(Publication(run, None).send(endpoint, content=content))


@click.command("durations", short_help="Now `evalkit merge --durations FILE`.", hidden=True)
@click.argument("runs", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, dir_okay=False), required=True, help="A small JSON file."
)
def durations_command(runs: tuple[Path, ...], output: Path) -> None:
    """Keep how long each case of RUNS took. Now `evalkit merge --durations FILE`."""
    note = "is now `evalkit merge --durations FILE`; --evalkit-durations also takes a run file as it is"
    click.echo(f"note: `evalkit durations` {note}", err=True)
    click.echo(keep_durations(runs, output))


FORMER = (export_command, durations_command)
