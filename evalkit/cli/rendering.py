"""`evalkit report`: a run file as text, in every format."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from evalkit.model.codec import plain
from evalkit.model.verdict import PASSED
from evalkit.reports.hostile import encodable
from evalkit.reports.runfile import load_run
from evalkit.reports.spans import line_text
from evalkit.reports.trace import TraceOptions, lines, paint


def rendered(run: Path, form: str, *, failed: bool, conversation: bool, to_terminal: bool) -> str:
    """The run as traces, or as JSON; `to_terminal` colours traces where standard output shows colours."""
    loaded = load_run(run)
    verdicts = [verdict for verdict in loaded.verdicts if not failed or verdict.status != PASSED]
    if form == "json":
        return json.dumps(
            plain({**loaded.to_json(), "verdicts": [verdict.to_json() for verdict in verdicts]}), indent=2
        )
    columns = shutil.get_terminal_size().columns
    is_terminal = to_terminal and sys.stdout.isatty()
    options = TraceOptions(
        width=columns if to_terminal else TraceOptions().width,
        breaks_at=columns if is_terminal else None,
        conversation=conversation,
    )
    shown = [line for verdict in verdicts for line in lines(verdict, options)]
    if is_terminal:
        return paint(shown, sys.stdout.encoding)
    return encodable("\n".join(map(line_text, shown)), sys.stdout.encoding if to_terminal else None)
