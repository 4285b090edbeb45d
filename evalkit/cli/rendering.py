"""`evalkit report`: a run file as text, in every format."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from evalkit.model.codec import to_plain_json
from evalkit.model.verdict import PASSED
from evalkit.reports.hostile import fit_to_encoding
from evalkit.reports.runfile import load_run
from evalkit.reports.spans import join_spans
from evalkit.reports.trace import TraceOptions, build_trace_lines, render_ansi


def render_run(run: Path, form: str, *, failed: bool, conversation: bool, to_terminal: bool) -> str:
    """The run as traces, or as JSON; `to_terminal` colours traces where standard output shows colours."""
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
