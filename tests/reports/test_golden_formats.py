"""Every format that is text, of the same run, as it was looked at and kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from evalkit.features.otel.spans import render_otlp_lines
from evalkit.hosts.reports.table import render_github_annotations, render_junit
from evalkit.hosts.reports.trace import TraceOptions, render_trace
from evalkit.records.codec import to_plain_json
from evalkit.records.run import Run
from evalkit.records.verdict import Reason, Verdict

GOLDEN = Path(__file__).parent / "golden"


def otel(run: Run) -> str:
    """Without what the SDK says of itself, which changes with its version."""
    (line,) = render_otlp_lines(run)
    return json.dumps(json.loads(line)["resourceSpans"][0]["scopeSpans"], indent=1, ensure_ascii=False)


FORMATS = {
    "trace.txt": lambda run: "\n".join(render_trace(verdict) for verdict in run.verdicts),
    "conversation.txt": lambda run: render_trace(run.verdicts[0], TraceOptions(conversation=True)),
    "cp1252.txt": lambda run: "\n".join(
        render_trace(verdict, TraceOptions(encoding="cp1252")) for verdict in run.verdicts
    ),
    "narrow.txt": lambda run: "\n".join(render_trace(verdict, TraceOptions(width=40)) for verdict in run.verdicts),
    "annotations.txt": lambda run: "\n".join(render_github_annotations(run)),
    "junit.xml": render_junit,
    "run.json": lambda run: json.dumps(to_plain_json(run.to_json()), indent=1, ensure_ascii=False),
    "spans.json": otel,
}


@pytest.mark.parametrize("name", FORMATS)
def test_a_format_reads_as_its_golden_file(name: str, warranty_verdict: Verdict) -> None:
    lost = Reason(code="missing_cassette", message="there is no cassette", location="scenarios/valid_003.yaml:1:1")
    verdicts = (
        warranty_verdict,
        Verdict(case_id="scenarios/valid_001.yaml", category="valid", tags=("smoke",), status="passed"),
        Verdict(case_id="scenarios/valid_003.yaml", status="error", reasons=(lost,)),
        Verdict(
            case_id="scenarios/valid_004.yaml", status="not_run", reasons=(Reason(code="skipped", message="later"),)
        ),
        replace(warranty_verdict, case_id="scenarios/known_001.yaml", quarantined="being mended"),
    )
    ids = tuple(verdict.case_id for verdict in verdicts)
    started = "2026-11-22T10:00:00+00:00"
    run = Run(verdicts=verdicts, selected=ids, collected=len(ids), wall_s=3.2, evalkit="0.1.0", started=started)
    assert FORMATS[name](run) + "\n" == (GOLDEN / name).read_text("utf-8")
