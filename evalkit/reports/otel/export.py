"""Spans on their way out: in batches, to an OTLP/HTTP endpoint or as lines of OTLP/JSON.

Ids are derived from the run and the order of its spans: whoever exports a run twice gets the same spans twice, and not
two runs.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

from evalkit.errors import UsageError
from evalkit.model.run import Run
from evalkit.reports.otel.spans import TraceWriter, list_traced_runs
from evalkit.reports.serialization import Redact, redact_run
from evalkit.text.redact import Redactor

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter


NEEDS_EXTRA = "OpenTelemetry export needs the extra: pip install 'pytest-evalkit[otel]'"
_BATCH = 100  # cases encoded and sent together,
_LARGE = 4_000_000  # unless their text is longer than this before; the OpenTelemetry collector takes up to 20 MB


def build_spans(run: Run, redact: Redact | None = None, *, content: bool = True) -> Iterator[list[ReadableSpan]]:
    """The spans of `run` without secrets, in batches of whole traces.

    `content` False leaves out what was said: messages, arguments, results, explanations. Raises UsageError where the
    OpenTelemetry SDK is missing.
    """
    try:
        from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
    except ImportError:
        raise UsageError(NEEDS_EXTRA) from None
    exporter, redact = InMemorySpanExporter(), redact or Redactor()
    tracer = _create_provider(run, exporter).get_tracer("evalkit", run.evalkit)
    start = _parse_nanoseconds(run.started)
    batch: list[ReadableSpan] = []
    waiting = size = 0
    for verdict in run.verdicts:
        for attempt in list_traced_runs(redact_run(Run(verdicts=(verdict,)), redact).verdicts[0]):
            TraceWriter(tracer, attempt, start, content=content).write()
        spans = exporter.get_finished_spans()
        exporter.clear()
        length = sum(map(_measure_text, spans))
        if batch and (waiting == _BATCH or size + length > _LARGE):
            yield batch
            batch, waiting, size = [], 0, 0
        batch, waiting, size = [*batch, *spans], waiting + 1, size + length
    if batch:
        yield batch


def _measure_text(span: ReadableSpan) -> int:
    """About how many characters of text `span` has; one event for each check is among them."""
    attribute_sets = [span.attributes, *(event.attributes for event in span.events)]
    return sum(len(value) for some in attribute_sets for value in (some or {}).values() if isinstance(value, str))


def render_otlp_lines(run: Run, redact: Redact | None = None, *, content: bool = True) -> Iterator[str]:
    """`run` as lines of OTLP/JSON, as the OpenTelemetry collector's file receiver reads them."""
    for spans in build_spans(run, redact, content=content):
        yield _to_otlp_json(spans)


def send(run: Run, endpoint: str, redact: Redact | None = None, *, content: bool = True) -> int:
    """Send `run` to an OTLP/HTTP endpoint; how many spans it took.

    `endpoint` is the collector's address; ``/v1/traces`` is added where it has no path. Headers, certificates and time
    limits come from the variables that the OpenTelemetry SDK documents (``OTEL_EXPORTER_OTLP_HEADERS``, ...). Raises
    UsageError where the extra is missing, the address is none, or the spans were not taken.
    """
    address = resolve_traces_address(endpoint)
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    except ImportError:
        raise UsageError(NEEDS_EXTRA) from None
    exporter: SpanExporter = OTLPSpanExporter(endpoint=address)
    try:
        return _send_batches(exporter, address, build_spans(run, redact, content=content))
    finally:
        exporter.shutdown()


def _send_batches(exporter: SpanExporter, address: str, batches: Iterator[Sequence[ReadableSpan]]) -> int:
    from opentelemetry.sdk.trace.export import SpanExportResult

    count = 0
    for spans in batches:
        with _collect_problems() as problems:
            try:
                result = exporter.export(spans)
            except OSError as error:  # older exporters let go of what their client raises
                problems.append(str(error))
                result = SpanExportResult.FAILURE
        if result is not SpanExportResult.SUCCESS:
            why = problems[-1] if problems else "the exporter gave no reason"
            raise UsageError(
                f"{address}: the spans were not taken ({count} were before): {why}\n"
                "see that an OTLP/HTTP collector takes spans there, then send the run again: evalkit export --to URL"
            )
        count += len(spans)
    return count


def resolve_traces_address(endpoint: str) -> str:
    """`endpoint` with the path of traces, as the OTLP specification makes it of a base address."""
    from urllib.parse import urlsplit

    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"{endpoint!r} is no OTLP/HTTP endpoint; expected one like http://localhost:4318")
    return endpoint if parts.path.strip("/") else f"{endpoint.rstrip('/')}/v1/traces"


@contextmanager
def _collect_problems() -> Iterator[list[str]]:
    """What the exporter logs while it fails, which is where it says why; kept from the user's own log."""
    messages: list[str] = []
    logger = logging.getLogger("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
    propagates = logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield messages
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagates


def _create_provider(run: Run, exporter: SpanExporter) -> TracerProvider:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import SpanLimits, TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.sampling import ALWAYS_ON

    facts = {"evalkit.run.started": run.started, "evalkit.run.shard": run.shard, "service.version": run.evalkit}
    named = {"service.name": "evalkit", "service.instance.id": run.started or "unknown"}
    resource = Resource.create({**named, **{key: value for key, value in facts.items() if value}})
    provider = TracerProvider(
        ALWAYS_ON,
        resource,
        shutdown_on_exit=False,
        id_generator=_create_id_generator(f"{run.started} {run.shard or ''}"),  # shards may start together
        span_limits=SpanLimits(max_events=SpanLimits.UNSET, max_span_attributes=SpanLimits.UNSET),
    )
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider


def _create_id_generator(seed: str) -> Any:
    """Ids by order of asking: spans are always written in the same order."""
    from opentelemetry.sdk.trace.id_generator import IdGenerator

    class DerivedIds(IdGenerator):
        def __init__(self) -> None:
            self._count = 0

        def _generate_next(self, size: int) -> int:
            self._count += 1
            return int.from_bytes(hashlib.sha256(f"{seed} {self._count}".encode()).digest()[:size]) or 1

        def generate_span_id(self) -> int:
            return self._generate_next(8)

        def generate_trace_id(self) -> int:
            return self._generate_next(16)

    return DerivedIds()


def _parse_nanoseconds(started: str) -> int:
    try:
        return int(datetime.fromisoformat(started).timestamp() * 1_000_000) * 1_000
    except ValueError:
        return 0


def _to_otlp_json(spans: Sequence[ReadableSpan]) -> str:
    """One ExportTraceServiceRequest. OTLP/JSON differs from protobuf's own JSON: ids are hexadecimal, enums numbers."""
    import base64

    from google.protobuf.json_format import MessageToDict
    from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans

    data = MessageToDict(encode_spans(spans), use_integers_for_enums=True)
    for of_resource in data.get("resourceSpans", ()):
        for of_scope in of_resource["scopeSpans"]:
            for span in of_scope["spans"]:
                for key in ("traceId", "spanId", "parentSpanId"):
                    if key in span:
                        span[key] = base64.b64decode(span[key]).hex()
    return json.dumps(data)
