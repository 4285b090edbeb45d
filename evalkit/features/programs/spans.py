"""Spans that the agent of a case exports while it runs: OTLP over HTTP, as protobuf or as JSON.

They arrive at the server of the run's functions, on this machine and under its secret path: nobody else can post there.
"""

from __future__ import annotations

import secrets
import zlib
from base64 import b64decode
from collections import deque
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import ClassVar
from urllib.parse import quote

from msgspec import Struct, field

from evalkit.agents.remote.http_server import Message, Receive, Send, read_headers, send_json
from evalkit.bounds import explain_bound, get_bounds
from evalkit.errors import EvalkitError
from evalkit.hosts.traces.api import UnreadableLogError, list_spans, parse_json
from evalkit.jsonvalue import JsonDict, JsonObject, filter_mappings

PATH = "otlp"
_OTHER_SIGNALS = ("v1/metrics", "v1/logs")  # they tell nothing of calls
_PROTOBUF, _JSON = "application/x-protobuf", "application/json"
NEEDS_EXTRA = "spans as protobuf need the extra: pip install 'pytest-evalkit[traces]'"


class SpanError(EvalkitError):
    """An export that is not taken."""


def has_protobuf() -> bool:
    """Return whether the extra is installed."""
    return find_spec("opentelemetry") is not None and find_spec("opentelemetry.proto") is not None


class SpanReceiver(Struct):
    """The exports of one run, as OTLP/JSON data: an `Endpoint` of the run's server."""

    counts_as_use: ClassVar[bool] = False

    exports: list[JsonObject] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    size: int = 0  # bytes

    def receive(self, signal: str, headers: Mapping[str, str], body: bytes) -> tuple[str, bytes]:
        """Take an export and return the response's type and body. Raise SpanError if it can't be read."""
        kind = headers.get("content-type", "").partition(";")[0].strip()
        response = (_JSON, b"{}") if kind == _JSON else (_PROTOBUF, b"")
        if signal in _OTHER_SIGNALS:
            return response
        try:
            if signal != "v1/traces":
                raise SpanError(f"an export to {signal!r}; expected v1/traces")
            body = self._decompress(headers.get("content-encoding", ""), body)
            export = _read_json(body) if kind == _JSON else _read_protobuf(body)
            deque(list_spans([export]), maxlen=0)  # none of them may be lost later
            self.exports.append(export)
        except (SpanError, UnreadableLogError, ValueError) as error:
            self.problems.append(str(error))
            raise SpanError(str(error)) from None
        return response

    def note_loss(self, rest: str, why: str) -> None:
        """Note that an export has not arrived as a whole: what it held can't be judged."""
        if rest.startswith("v1/traces"):
            advice = "have them sent in smaller batches (OTEL_BSP_MAX_EXPORT_BATCH_SIZE)"
            self.problems.append(f"an export did not arrive: {why}; {advice}")

    async def answer(self, rest: str, scope: Message, receive: Receive, send: Send) -> bool:
        """Answer an export, if the request is one."""
        if scope["method"] != "POST":
            return False
        headers = read_headers(scope)
        try:
            kind, body = self.receive(rest, headers, (await receive())["body"])
        except SpanError as error:  # 400: exporters don't try again
            await send_json(send, 400, {"error": {"type": "unreadable", "message": str(error)}})
            return True
        lines = [(b"content-type", kind.encode("ascii")), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": lines})
        await send({"type": "http.response.body", "body": body})
        return True

    async def aclose(self) -> None:
        """Nothing is left open."""

    def _decompress(self, encoding: str, body: bytes) -> bytes:
        limit = get_bounds().recording_bytes - self.size
        if encoding == "gzip":
            unpacker = zlib.decompressobj(wbits=31)
            try:
                body = unpacker.decompress(body, max(limit, 0) + 1)
            except zlib.error as error:
                raise SpanError(f"the export is no gzip: {error}") from None
            if (not unpacker.eof and len(body) <= limit) or unpacker.unused_data:
                raise SpanError("the export is no gzip, or not the whole of it")
        elif encoding not in ("", "identity"):
            raise SpanError(f"the export is compressed by {encoding!r}; expected gzip")
        if len(body) > limit:
            raise SpanError(f"the spans of the run are too large{explain_bound('recording_bytes')}")
        self.size += len(body)
        return body


class RequestTrace(Struct, frozen=True):
    """The trace that a service is asked to continue: the ids in the header ``traceparent`` of its request."""

    trace_id: str = field(default_factory=lambda: secrets.token_hex(16))
    span_id: str = field(default_factory=lambda: secrets.token_hex(8))

    @property
    def header(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-01"

    def is_complete(self, exports: Sequence[JsonObject]) -> bool:
        """Return whether the span that continues the request's is there: it ends, and is exported, after all others."""
        spans = (span for export in self.select(exports) for span in list_spans([export]))
        return any(_to_hex(span.get("parentSpanId"), 8) == self.span_id for span in spans)

    def select(self, exports: Sequence[JsonObject]) -> list[JsonObject]:
        """Return the exports with the spans of this trace alone: an exporter sends those of other requests along."""
        result: list[JsonObject] = []
        for export in exports:
            resources = [
                {**resource, "scopeSpans": [self._select_spans(scope) for scope in filter_mappings(scopes)]}
                for resource in filter_mappings(export.get("resourceSpans"))
                if (scopes := resource.get("scopeSpans"))
            ]
            if any(scope["spans"] for resource in resources for scope in resource["scopeSpans"]):
                result.append({"resourceSpans": resources})
        return result

    def _select_spans(self, scope: JsonObject) -> JsonDict:
        spans = filter_mappings(scope.get("spans"))
        return {**scope, "spans": [span for span in spans if _to_hex(span.get("traceId"), 16) == self.trace_id]}


def _to_hex(value: object, size: int) -> str:
    """Return an id as hexadecimal text: OTLP/JSON writes it so, protobuf's JSON in base64."""
    if not isinstance(value, str) or len(value) == 2 * size:
        return str(value).lower()
    try:
        return b64decode(value, validate=True).hex()
    except ValueError:
        return value


def _read_json(body: bytes) -> JsonObject:
    data = parse_json(body.decode("utf-8"))
    if not isinstance(data, dict):
        raise SpanError("the export is no JSON object")
    if data and "resourceSpans" not in data:
        raise SpanError(f"the export holds {', '.join(map(repr, data))[:80]}; expected 'resourceSpans'")
    return data


def _read_protobuf(body: bytes) -> JsonObject:
    if not has_protobuf():
        raise SpanError(NEEDS_EXTRA)
    # The package is an optional one.
    from google.protobuf.json_format import MessageToDict
    from google.protobuf.message import DecodeError
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    try:
        data: JsonObject = MessageToDict(ExportTraceServiceRequest.FromString(body))
    except (DecodeError, RecursionError) as error:
        raise SpanError(f"the export is no protobuf of OTLP: {error}") from None
    return data


def build_span_environment(
    case_id: str, functions_url: str, environment: Mapping[str, str | None]
) -> dict[str, str | None]:
    """Return the variables by which OpenTelemetry's exporters find the receiver; None removes one.

    `environment` is that of the agent without them. What it says of another collector and its keys is removed.
    """
    known = environment.get("OTEL_RESOURCE_ATTRIBUTES")
    attributes = ",".join(filter(None, (known, f"evalkit.case_id={quote(case_id, safe='/.-_')}")))
    capture = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
    removed = ("TRACES_ENDPOINT", "HEADERS", "TRACES_HEADERS", "TRACES_PROTOCOL", "COMPRESSION", "TRACES_COMPRESSION")
    return {
        **{f"OTEL_EXPORTER_OTLP_{name}": None for name in (*removed, "CERTIFICATE", "TRACES_CERTIFICATE")},
        "OTEL_SDK_DISABLED": None,
        "OTEL_TRACES_SAMPLER": "always_on",
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"{functions_url}/{PATH}",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf" if has_protobuf() else "http/json",
        "OTEL_RESOURCE_ATTRIBUTES": attributes,
        capture: environment.get(capture) or "true",
    }
