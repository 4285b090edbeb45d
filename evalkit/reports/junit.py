"""A run file as JUnit XML, for servers that read nothing else. Under pytest, `--junitxml` writes the same facts.

XML 1.0 has no way to write most control characters, not even as references, so they are shown as escapes.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePosixPath
from xml.sax.saxutils import escape, quoteattr

from evalkit.model.run import Run
from evalkit.model.verdict import ERROR, FAILED, NOT_RUN, PASSED, Verdict
from evalkit.reports.serialization import Redact, redact_run
from evalkit.reports.summary import format_faults
from evalkit.reports.trace import render_trace
from evalkit.text.escape import escape_controls, escape_lines

_TAGS = {FAILED: "failure", ERROR: "error"}


def render_junit(run: Run, redact: Redact | None = None) -> str:
    """Render one suite, one test case per verdict: properties, the first reason as message, the trace as text."""
    verdicts = redact_run(run, redact).verdicts
    skipped = sum(_is_skipped(verdict) for verdict in verdicts)
    counted = {status: sum(v.status == status and not _is_skipped(v) for v in verdicts) for status in _TAGS}
    seconds = sum(_sum_seconds(verdict) for verdict in verdicts)
    head = {
        "name": "evalkit",
        "errors": counted[ERROR],
        "failures": counted[FAILED],
        "skipped": skipped,
        "tests": len(verdicts),
        "time": f"{seconds:.3f}",
        "timestamp": run.started,
    }
    suite = f"<testsuite {_format_attributes(head.items())}>"
    lines = ['<?xml version="1.0" encoding="utf-8"?>', '<testsuites name="evalkit">', suite]
    for verdict in verdicts:
        lines += _render_case(verdict)
    return "\n".join([*lines, "</testsuite>", "</testsuites>"]) + "\n"


def _is_skipped(verdict: Verdict) -> bool:
    return verdict.status == NOT_RUN or (verdict.quarantined is not None and verdict.status != PASSED)


def _sum_seconds(verdict: Verdict) -> float:
    timings = [run.transcript.timing for run in verdict.runs or (verdict,)]
    return sum(timing.total_ms for timing in timings if timing is not None) / 1000


def _render_case(verdict: Verdict) -> Iterable[str]:
    place = PurePosixPath(verdict.case_id)
    name = {"classname": ".".join(place.parent.parts), "name": place.stem, "time": f"{_sum_seconds(verdict):.3f}"}
    properties = {
        "evalkit_status": verdict.status,
        "evalkit_category": verdict.category,
        "evalkit_codes": " ".join(dict.fromkeys(reason.code for reason in verdict.reasons)),
        "evalkit_faults": format_faults(verdict),
    }
    present = [(key, value) for key, value in properties.items() if value or key == "evalkit_status"]
    yield f"  <testcase {_format_attributes(name.items())}>"
    yield "    <properties>"
    for pair in present:
        yield f"      <property {_format_attributes(zip(('name', 'value'), pair, strict=True))}/>"
    yield "    </properties>"
    reason = next((reason.message or reason.code for reason in verdict.reasons), verdict.summary)[:2000]
    if _is_skipped(verdict):
        yield f"    <skipped {_format_attributes([('message', verdict.quarantined or reason)])}/>"
    elif verdict.status in _TAGS:
        tag = _TAGS[verdict.status]
        head = f"{tag} {_format_attributes([('message', reason)])}"
        yield f"    <{head}>{escape(escape_lines(render_trace(verdict)))}</{tag}>"
    yield "  </testcase>"


def _format_attributes(pairs: Iterable[tuple[str, object]]) -> str:
    return " ".join(f"{name}={quoteattr(escape_controls(str(value), keep=_LINE_FEED))}" for name, value in pairs)


_LINE_FEED = "\n"  # quoteattr writes it as a reference
