"""What a session leaves beside the run file: the HTML report, spans, and on a GitHub runner summary and annotations.

Everything is rendered from the run file, from which secrets are gone already.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from evalkit.errors import UsageError
from evalkit.gate.outcomes import CaseOutcome, build_outcome
from evalkit.model.run import GateDecision, Run
from evalkit.model.verdict import ERROR, FAILED
from evalkit.plugin.configuration import Configuration
from evalkit.reports.run_file import load_run


def read_baseline(configuration: Configuration) -> tuple[list[CaseOutcome] | None, Run | None]:
    """What the gate has to know of the run to compare with, and the whole of it where a report shows both."""
    if configuration.baseline is None:
        return None, None
    if configuration.html is not None or os.environ.get("GITHUB_STEP_SUMMARY"):
        run = load_run(configuration.baseline)
        return [build_outcome(verdict) for verdict in run.verdicts], run
    from evalkit.reports.run_file import read_verdicts

    return [build_outcome(verdict) for verdict in read_verdicts(configuration.baseline)], None


def publish(configuration: Configuration, decision: GateDecision, baseline: Run | None) -> Iterator[str]:
    """Write the reports that are asked for; a line for each that could not be written."""
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if configuration.html is not None:
        try:
            _write_page(configuration.html, configuration.results, decision, baseline)
        except OSError as error:
            yield f"the HTML report was not written: {error}"
    if configuration.otlp is None and not summary:
        return
    run = load_run(configuration.results)
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


def build_annotations(configuration: Configuration) -> list[str]:
    """Lines that a GitHub runner turns into annotations at the cases' files; none anywhere else."""
    if os.environ.get("GITHUB_ACTIONS") != "true":
        return []
    from evalkit.reports.github import render_github_annotations
    from evalkit.reports.run_file import read_verdicts

    top = Path(os.environ.get("GITHUB_WORKSPACE") or configuration.root)
    bad = tuple(verdict for verdict in read_verdicts(configuration.results) if verdict.status in (FAILED, ERROR))
    folder = configuration.root.relative_to(top).as_posix() if configuration.root.is_relative_to(top) else ""
    return render_github_annotations(Run(verdicts=bad), folder="" if folder == "." else folder)


def _write_page(path: Path, results: Path, decision: GateDecision, baseline: Run | None) -> None:
    from evalkit.reports.html import generate_html
    from evalkit.reports.run_file import StoredRun

    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(StoredRun(results)) as stored, path.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(generate_html(stored.run, decision, baseline, verdicts=stored.iter_verdicts()))


def _append_summary(path: Path, run: Run, decision: GateDecision, baseline: Run | None) -> None:
    from evalkit.reports.markdown import render_markdown

    with path.open("a", encoding="utf-8", newline="\n") as file:
        file.write(render_markdown(run, decision, baseline) + "\n")
