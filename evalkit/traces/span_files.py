"""Spans as files hold them: OTLP/JSON, what Tempo and Jaeger export, and one span a record, as OpenTelemetry's console
exporter and Phoenix write them. All become spans of OTLP whose attributes are plain JSON.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Any

from evalkit.jsonvalue import JsonDict, JsonObject, filter_mappings
from evalkit.text.format import cut_between_words
from evalkit.traces.log_formats import UnreadableLogError, decode_result, list_objects

_EXPORTS = ("resourceSpans", "batches")
_PAIR = {"key", "value", "type"}  # the keys of an attribute
_SCOPES = ("scopeSpans", "instrumentationLibrarySpans")  # the second is the older name
_MOST_DIGITS = 20
_MOST_SHARED = 128  # attributes of a resource, as OpenTelemetry's own limit is: each of its spans has them too
_NESTED = ("llm", "gen_ai", "openinference", "input", "output", "tool", "agent", "traceloop", "ai")
_WHOLE = (  # attributes whose value is data, not further attributes
    *("gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.system_instructions", "gen_ai.tool.definitions"),
    *("gen_ai.tool.call.arguments", "gen_ai.tool.call.result", "input.value", "output.value", "tool.parameters"),
)


def is_export(record: object) -> bool:
    """Return whether a record holds spans, or is one."""
    if not isinstance(record, Mapping):
        return False
    if any(isinstance(record.get(key), list) for key in _EXPORTS):
        return True
    return _is_of_jaeger(record) or _is_of_mlflow(record) or _is_span(record)


def _is_of_jaeger(record: JsonObject) -> bool:
    traces = [*filter_mappings(record.get("data"))]
    return bool(traces) and all("traceID" in trace and "spans" in trace for trace in traces)


def _is_of_mlflow(record: JsonObject) -> bool:
    data = record.get("data")
    return isinstance(data, Mapping) and any(map(_is_span, filter_mappings(data.get("spans"))))


def _is_span(record: JsonObject) -> bool:
    has_attributes = isinstance(record.get("attributes"), Mapping) or any(
        key.startswith("attributes.") for key in record
    )
    return has_attributes and bool(_get_id(record, "span_id"))


def _get_id(record: JsonObject, name: str) -> str:
    context = record.get("context")
    inner = context.get(name) if isinstance(context, Mapping) else None
    camel = name.replace("_id", "Id")
    return str(inner or record.get(f"context.{name}") or record.get(name) or record.get(camel) or "")


def list_spans(records: Sequence[JsonObject]) -> Iterator[JsonObject]:
    """Yield the spans of records that are exports, with the attributes of their resource beside their own.

    Raise UnreadableLogError where a list of spans is none: what it holds would be lost.
    """
    for data in _list_as_written(records):
        yield _translate_mlflow(data) if "mlflow.spanType" in data["attributes"] else data


def _list_as_written(records: Sequence[JsonObject]) -> Iterator[JsonObject]:
    for record in records:
        for key in _EXPORTS:
            for of_resource in list_objects(record, key):
                yield from _list_of_resource(of_resource)
        if _is_of_jaeger(record):
            for trace in filter_mappings(record["data"]):
                yield from _list_of_jaeger(trace)
        elif _is_of_mlflow(record):
            yield from (_read_record(span) for span in filter_mappings(record["data"]["spans"]))
        elif _is_span(record):
            yield _read_record(record)


_MLFLOW_KINDS = {"CHAT_MODEL": "LLM"}  # the others are called as in OpenInference


def _translate_mlflow(data: JsonObject) -> JsonDict:
    """Return a span of MLflow, all of whose attributes are JSON, with the attributes of OpenInference."""
    attributes = {key: decode_result(value, is_json=True) for key, value in data["attributes"].items()}
    kind, usage = str(attributes["mlflow.spanType"]), attributes.get("mlflow.chat.tokenUsage")
    name = attributes.get("mlflow.spanFunctionName") or data.get("name")
    told = {
        "openinference.span.kind": _MLFLOW_KINDS.get(kind, kind),
        "input.value": attributes.get("mlflow.spanInputs"),
        "output.value": attributes.get("mlflow.spanOutputs"),
        "llm.model_name": attributes.get("mlflow.llm.model"),
        **({f"{kind.lower()}.name": name} if kind in ("TOOL", "AGENT") else {}),
        **({f"gen_ai.usage.{key}": count for key, count in usage.items()} if isinstance(usage, Mapping) else {}),
    }
    return {**data, "attributes": {**{key: value for key, value in told.items() if value is not None}, **attributes}}


def _list_of_resource(of_resource: JsonObject) -> Iterator[JsonObject]:
    resource = of_resource.get("resource")
    shared = _to_shared(resource.get("attributes") if isinstance(resource, Mapping) else None)
    if unknown := next((key for key in of_resource if "span" in key.lower() and key not in _SCOPES), None):
        raise UnreadableLogError(f"an export holds {unknown!r}; expected {_SCOPES[0]!r}, as OTLP/JSON writes it")
    for key in _SCOPES:
        for of_scope in list_objects(of_resource, key):
            for data in list_objects(of_scope, "spans"):
                yield {**data, "attributes": {**shared, **_read_attributes(data)}}


def _read_attributes(span: JsonObject) -> JsonDict:
    """Return the attributes of a span of OTLP. Raise UnreadableLogError where one, or all of them, would be lost."""
    if span.keys().isdisjoint(("traceId", "spanId", "name", "attributes")):
        raise UnreadableLogError(f"a span is none: {cut_between_words(str(span))}")
    named = span.get("attributes")
    if isinstance(named, Mapping):
        values = [item for value in named.values() for item in (value if isinstance(value, list) else [value])]
        if any(isinstance(item, Mapping) and item.keys() == {"key", "value"} for item in values):
            raise UnreadableLogError(f"the attributes of a span are no list: {cut_between_words(str(named))}")
        return dict(named)
    if strange := next((key for key in span if key != "attributes" and key.lower().startswith("attribute")), None):
        raise UnreadableLogError(f"a span holds {strange!r}; expected 'attributes'")
    listed = list_objects(span, "attributes")
    if broken := next((one for one in listed if not (isinstance(one.get("key"), str) and one.keys() <= _PAIR)), None):
        raise UnreadableLogError(f"an attribute of a span is no {{key, value}}: {cut_between_words(str(broken))}")
    return to_attributes(listed)


def drop_copies(spans: Iterable[JsonObject]) -> Iterator[JsonObject]:
    """Yield `spans`, each once: an exporter that got no answer sends them again."""
    seen: dict[tuple[str, str], JsonObject] = {}
    for span in spans:
        key = str(span.get("traceId")), str(span.get("spanId") or "")
        first = seen.setdefault(key, span) if key[1] else span
        if first is span or first != span:
            yield span


def _to_shared(attributes: object) -> JsonDict:
    return dict(islice(to_attributes(attributes).items(), _MOST_SHARED))


def _list_of_jaeger(trace: JsonObject) -> Iterator[JsonDict]:
    processes = trace.get("processes")
    listed = processes.items() if isinstance(processes, Mapping) else ()
    shared = {key: _to_shared(process.get("tags")) for key, process in listed if isinstance(process, Mapping)}
    for span in filter_mappings(trace.get("spans")):
        yield _read_jaeger_span(span, shared.get(str(span.get("processID")), {}))


def _read_jaeger_span(span: JsonObject, shared: JsonObject) -> JsonDict:
    attributes = {**shared, **to_attributes(span.get("tags"))}
    parents = [item for item in filter_mappings(span.get("references")) if item.get("refType") == "CHILD_OF"]
    start, duration = (to_integer(span.get(key)) * 1000 for key in ("startTime", "duration"))  # of microseconds
    logs = [to_attributes(log.get("fields")) for log in filter_mappings(span.get("logs"))]
    failed = attributes.get("otel.status_code") == "ERROR" or attributes.get("error") is True
    return {
        "traceId": span.get("traceID"),
        "spanId": span.get("spanID"),
        "parentSpanId": next((item.get("spanID") for item in parents), ""),
        "name": span.get("operationName"),
        "startTimeUnixNano": start,
        "endTimeUnixNano": start + duration,
        "attributes": attributes,
        "status": {"code": 2 if failed else 0, "message": attributes.get("otel.status_description")},
        "events": [{"name": fields.get("event"), "attributes": fields} for fields in logs],
    }


def _read_record(record: JsonObject) -> JsonDict:
    """Read a span that is a record of its own: nested, or a row whose columns have dotted names."""
    resource, status = record.get("resource"), record.get("status")
    shared = resource.get("attributes") if isinstance(resource, Mapping) else None
    own = record.get("attributes")
    columns = {key.removeprefix("attributes."): value for key, value in record.items() if key.startswith("attributes.")}
    attributes = {
        key: value
        for holder in (shared, own, columns)
        if isinstance(holder, Mapping)
        for key, value in flatten_attributes(holder).items()
        if value is not None
    }
    if isinstance(record.get("span_kind"), str):
        attributes.setdefault("openinference.span.kind", record["span_kind"])
    of_status = status if isinstance(status, Mapping) else {"code": status}
    code = of_status.get("status_code") or of_status.get("code") or record.get("status_code")
    message = of_status.get("description") or of_status.get("message") or record.get("status_message")
    return {
        "traceId": _get_id(record, "trace_id"),
        "spanId": _get_id(record, "span_id"),
        "parentSpanId": record.get("parent_id") or record.get("parent_span_id") or record.get("parentSpanId") or "",
        "name": record.get("name"),
        "startTimeUnixNano": _read_time(record, "start_time"),
        "endTimeUnixNano": _read_time(record, "end_time"),
        "attributes": attributes,
        "status": {"code": 2 if str(code).rpartition("_")[2].upper() in ("ERROR", "2") else 0, "message": message},
        "events": record.get("events") or [_read_event(event) for event in filter_mappings(record.get("span_events"))],
    }


def _read_event(event: JsonObject) -> JsonDict:
    """Read an event as AWS's exporters write it."""
    return {**event, "name": event.get("event_name") or event.get("name")}


def _read_time(record: JsonObject, name: str) -> int:
    """Return a time as nanoseconds: from ISO 8601, or a number of them; 0 for anything else."""
    camel = {"start_time": "startTimeUnixNano", "end_time": "endTimeUnixNano"}[name]
    value = next((record[key] for key in (name, f"{name}_unix_nano", camel) if record.get(key) is not None), None)
    if isinstance(value, str) and not value.isdecimal():
        try:
            return int(datetime.fromisoformat(value).timestamp() * 1e9)
        except (ValueError, OverflowError, OSError):
            return 0
    return to_integer(value)


def flatten_attributes(attributes: JsonObject) -> JsonDict:
    """Return attributes by their dotted names, where an export has nested some of them."""
    flat: JsonDict = {}
    pending = [(str(key), value) for key, value in [*attributes.items()][::-1]]
    while pending:
        key, value = pending.pop()
        root = key.partition(".")[0]
        if isinstance(value, Mapping) and root in _NESTED and key not in _WHOLE:
            pending += [(f"{key}.{name}", inner) for name, inner in [*value.items()][::-1]]
        elif isinstance(value, list) and root == "llm" and any(isinstance(item, Mapping) for item in value):
            pending += [(f"{key}.{index}", inner) for index, inner in [*enumerate(value)][::-1]]
        else:
            flat[key] = value
    return flat


def to_attributes(attributes: object) -> JsonDict:
    """Return attributes as plain JSON: of OTLP or Jaeger, which list them, or a mapping."""
    if isinstance(attributes, Mapping):
        return dict(attributes)
    return {str(item.get("key")): _to_plain(item.get("value")) for item in filter_mappings(attributes)}


def _to_plain(value: object) -> Any:
    """Return an OTLP AnyValue as JSON data, and other data as it is."""
    if not isinstance(value, Mapping):
        return value
    if not value:
        return None
    kind, inner = next(iter(value.items()))
    if kind in ("arrayValue", "kvlistValue"):
        items = filter_mappings(inner.get("values") if isinstance(inner, Mapping) else None)
        if kind == "arrayValue":
            return [_to_plain(item) for item in items]
        return {str(item.get("key")): _to_plain(item.get("value")) for item in items}
    return parse_integer(inner) if kind == "intValue" else inner


def parse_integer(value: object) -> object:
    """Return the integer that a text is, as OTLP/JSON writes those of 64 bits, and other data as it is."""
    is_integer = isinstance(value, str) and value.removeprefix("-").isdecimal() and len(value) <= _MOST_DIGITS
    return int(str(value)) if is_integer else value


def to_integer(value: object) -> int:
    """Return a 64-bit integer, which is text in OTLP/JSON; 0 for anything else."""
    value = parse_integer(value)
    return value if isinstance(value, int) and abs(value) < 10**_MOST_DIGITS else 0
