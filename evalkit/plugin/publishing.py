"""What a session leaves beside the run file: the HTML report, spans, and on a GitHub runner summary and annotations.

Everything is rendered from the run file, from which secrets are gone already.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from evalkit.errors import UsageError
from evalkit.model.run import GateDecision, Run
from evalkit.plugin.configuration import Configuration
from evalkit.reports.runfile import load_run


def publish(configuration: Configuration, decision: GateDecision, baseline: Run | None) -> Iterator[str]:
    """Write the reports that are asked for; a line for each that could not be written."""
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if configuration.html is None and configuration.otlp is None and not summary:
        return
    run = load_run(configuration.results)
    if configuration.html is not None:
        try:
            _write_page(configuration.html, run, decision, baseline)
        except OSError as error:
            yield f"the HTML report was not written: {error}"
    if configuration.otlp is not None:
        from evalkit.reports.otel import send

        try:
            send(run, configuration.otlp)
        except UsageError as error:
            yield f"the spans were not sent: {error}"
    if summary:
        try:
            _append_summary(Path(summary), run, decision, baseline)
        except OSError as error:
            yield f"the step summary was not written: {error}"


def annotation_lines(configuration: Configuration) -> list[str]:
    """Lines that a GitHub runner turns into annotations at the cases' files; none anywhere else."""
    if os.environ.get("GITHUB_ACTIONS") != "true":
        return []
    from evalkit.reports.github import github_annotations

    top = Path(os.environ.get("GITHUB_WORKSPACE") or configuration.root)
    folder = configuration.root.relative_to(top).as_posix() if configuration.root.is_relative_to(top) else ""
    return github_annotations(load_run(configuration.results), folder="" if folder == "." else folder)


def _write_page(path: Path, run: Run, decision: GateDecision, baseline: Run | None) -> None:
    from evalkit.reports.html import render_html

    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(render_html(run, decision, baseline), "utf-8", newline="\n")


def _append_summary(path: Path, run: Run, decision: GateDecision, baseline: Run | None) -> None:
    from evalkit.reports.markdown import render_markdown

    with path.open("a", encoding="utf-8", newline="\n") as file:
        file.write(render_markdown(run, decision, baseline) + "\n")
