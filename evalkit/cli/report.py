"""`evalkit report` in the formats that leave the machine: the run with the gate's decision, and without secrets."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

from evalkit.cli.gate import build_policy, load_baseline
from evalkit.cli.project import build_redactor
from evalkit.gate.decision import decide
from evalkit.model.codec import to_plain_json
from evalkit.model.run import GateDecision, Run
from evalkit.model.verdict import PASSED
from evalkit.reports.markdown import MarkdownOptions, render_markdown
from evalkit.reports.run_file import load_run
from evalkit.reports.table import REPORTS, ReportInput, send_spans
from evalkit.reports.trace import TraceOptions, build_trace_lines, join_spans, render_ansi
from evalkit.text.format import fit_to_encoding


class Publication:
    """A run, what it is compared with, and the decision on it by [tool.evalkit] of the current folder."""

    def __init__(self, run: Path, baseline: Path | None) -> None:
        self.run: Run = load_run(run)
        self.baseline: Run | None = load_baseline(baseline)
        self.decision: GateDecision = decide(self.run, build_policy({}), self.baseline)
        self.redact = build_redactor(Path.cwd())

    def to_markdown(self, *, title: str, limit: int, marker: str = "", url: str = "") -> str:
        """The report as Markdown, below `limit` bytes."""
        options = MarkdownOptions(title=title, limit=limit, marker=marker, report_url=url)
        return render_markdown(self.run, self.decision, self.baseline, options, self.redact)

    def render(self, name: str, title: str) -> str:
        """Return the report `name` of REPORTS."""
        source = ReportInput(
            run=self.run,
            decision=self.decision,
            baseline=self.baseline,
            title=title,
            redact=self.redact,
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
    )
    trace_lines = [line for verdict in verdicts for line in build_trace_lines(verdict, options)]
    if is_terminal:
        return render_ansi(trace_lines, sys.stdout.encoding)
    return fit_to_encoding("\n".join(map(join_spans, trace_lines)), sys.stdout.encoding if to_terminal else None)
