"""`evalkit export`, the name of before of `evalkit report --to`."""

from __future__ import annotations

from pathlib import Path

import click

from evalkit.features.otel.spans import send
from evalkit.hosts.commands.api import build_redactor
from evalkit.hosts.reports.api import load_run


@click.command("export", short_help="Now `evalkit report --to URL`.", hidden=True)
@click.argument("run", type=click.Path(path_type=Path), default=".evalkit/last-run.json")
@click.option("--to", "endpoint", metavar="URL", required=True, help="An OTLP/HTTP endpoint: http://localhost:4318")
@click.option("--content/--no-content", default=True, help="Send what was said, called and answered, too.")
def export(run: Path, endpoint: str, *, content: bool) -> None:
    """Send a run as OpenTelemetry spans. Now `evalkit report --to URL`."""
    click.echo("note: `evalkit export` is now `evalkit report --to URL`", err=True)
    count = send(load_run(run), endpoint, build_redactor(Path.cwd()), content=content)
    click.echo(f"{endpoint} took {count} spans")
