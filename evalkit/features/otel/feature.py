"""The hooks of OpenTelemetry spans."""

from __future__ import annotations

from collections.abc import Iterator

from evalkit.errors import UsageError
from evalkit.features.otel.spans import send
from evalkit.hooks import Feature, Loss, Options, Published, Sent, SessionPart
from evalkit.hosts.reports.api import FinishedRun


class OpenTelemetry(Feature):
    """Spans of a run, sent to an OTLP/HTTP endpoint."""

    name = "otel"

    def configure(self, options: Options) -> SessionPart | None:
        endpoint = options.read("otlp")
        return None if endpoint is None else SpanExport(endpoint, content=options.read("otlp_content") is not False)


class SpanExport(SessionPart):
    """Where the spans of a run go. `content`: with what was said, called and answered."""

    def __init__(self, url: str, *, content: bool) -> None:
        self._url = url
        self._content = content

    def publish(self, report: FinishedRun) -> Iterator[Published]:
        try:
            count = send(report.run, self._url, report.redact, content=self._content)
        except UsageError as error:
            yield Loss("the spans", str(error), is_sent=True)
        else:
            yield Sent(f"{self._url} took {count} spans")
