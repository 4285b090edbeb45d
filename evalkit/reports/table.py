"""The table of reports, from which command line and plugin take them. To add a report, add an entry."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from msgspec import Struct

from evalkit.model.run import NOT_MEASURED, GateDecision, Run
from evalkit.model.verdict import Verdict
from evalkit.reports.github import render_github_annotations
from evalkit.reports.junit import render_junit
from evalkit.reports.markdown import MarkdownOptions, render_markdown
from evalkit.reports.serialization import Redact


class ReportInput(Struct, frozen=True, kw_only=True):
    """A run, and whatever a report may be made of besides."""

    run: Run
    decision: GateDecision = GateDecision(status=NOT_MEASURED)
    baseline: Run | None = None
    title: str = "evalkit"
    redact: Redact | None = None  # None: known shapes of tokens, and keys of secrets
    folder: str = ""  # of the project, from the root of its repository
    verdicts: Iterable[Verdict] | None = None  # redacted ones, where `run` is without them


class Report(Struct, frozen=True, kw_only=True):
    """A report: `render` yields its text in pieces; `needs` are the fields of its input beside run and `redact`."""

    name: str
    render: Callable[[ReportInput], Iterator[str]]
    needs: tuple[str, ...] = ()
    extra: str = ""  # the optional dependency without which it raises UsageError
    is_json: bool = False


def _render_html(source: ReportInput) -> Iterator[str]:
    from evalkit.reports.html import generate_html  # jinja2, and a page's worth of data

    yield from generate_html(
        source.run, source.decision, source.baseline, title=source.title, redact=source.redact, verdicts=source.verdicts
    )


def _render_markdown(source: ReportInput) -> Iterator[str]:
    options = MarkdownOptions(title=source.title)
    yield render_markdown(source.run, source.decision, source.baseline, options, source.redact)


def _render_github(source: ReportInput) -> Iterator[str]:
    yield "\n".join(render_github_annotations(source.run, folder=source.folder, redact=source.redact))


def _render_junit(source: ReportInput) -> Iterator[str]:
    yield render_junit(source.run, source.redact)


def _render_otel(source: ReportInput) -> Iterator[str]:
    from evalkit.reports.otel import render_otlp_lines

    for line in render_otlp_lines(source.run, source.redact):
        yield line + "\n"


_DECISION = ("decision", "baseline", "title")
REPORTS: dict[str, Report] = {
    report.name: report
    for report in (
        Report(name="html", render=_render_html, needs=(*_DECISION, "verdicts")),
        Report(name="markdown", render=_render_markdown, needs=_DECISION),
        Report(name="github", render=_render_github, needs=("folder",)),
        Report(name="junit", render=_render_junit),
        Report(name="otel", render=_render_otel, extra="otel", is_json=True),
    )
}


def send_spans(run: Run, endpoint: str, redact: Redact | None = None, *, content: bool = True) -> int:
    """Send `run` as OpenTelemetry spans, as `evalkit.reports.otel.send` does. Return how many were taken."""
    from evalkit.reports.otel import send

    return send(run, endpoint, redact, content=content)
