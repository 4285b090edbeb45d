"""`agent: {command, spans: true}`: a program is judged by the spans that it exports to evalkit while it runs."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from evalkit import load_case, run_case
from evalkit.bounds import Bounds, set_bounds
from evalkit.features.programs.spans import SpanError, SpanReceiver, build_span_environment
from evalkit.records.settings import Settings
from evalkit.records.verdict import ERROR, FAILED, PASSED, Verdict
from evalkit.yamlfile.write import dump

PROGRAM = '''\
"""Exports the spans in spans.json, as OTLP/JSON, and calls a function of the case if it is told to."""
import json, os, sys, urllib.request

def post(url, body, kind="application/json"):
    request = urllib.request.Request(url, body, {"content-type": kind})
    return urllib.request.urlopen(request).read()

sys.stdin.read()
if "CALL" in os.environ:
    post(os.environ["EVALKIT_FUNCTIONS_URL"] + "/call/close_order", b'{"order": 7}')
for name in sys.argv[1:]:
    with open(name, "rb") as file:
        post(os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] + "/v1/traces", file.read())
print(os.environ.get("SAYS", ""))
'''
CALL = {"type": "tool_call", "id": "c1", "name": "close_order", "arguments": {"order": 7}}
SPANS: list[tuple[str, dict[str, Any]]] = [
    ("invoke_agent", {"gen_ai.agent.name": "desk"}),
    ("chat", {"gen_ai.output.messages": [{"role": "assistant", "parts": [CALL]}], "gen_ai.usage.input_tokens": 5}),
    ("execute_tool", {"gen_ai.tool.name": "close_order", "gen_ai.tool.call.result": {"closed": True}}),
    ("chat", {"gen_ai.output.messages": [{"role": "assistant", "parts": [{"type": "text", "content": "Closed."}]}]}),
]
EXPECTED = {
    "expected_function_calls": [
        {"function_name": "close_order", "arguments": {"order": 7}, "result_contains": {"closed": True}}
    ],
    "max_model_turns": 2,
    "response_contains": "closed",
}


def build_export(spans: list[tuple[str, dict[str, Any]]], first: int = 0) -> bytes:
    written = []
    for number, (operation, attributes) in enumerate(spans, first):
        values = {"gen_ai.operation.name": operation, **attributes}
        listed = [
            {"key": key, "value": {"stringValue": value if isinstance(value, str) else json.dumps(value)}}
            for key, value in values.items()
        ]
        ids = {"traceId": "t", "spanId": str(number), "parentSpanId": "0" if number else ""}
        written.append({**ids, "startTimeUnixNano": str(number + 1), "attributes": listed})
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": written}]}]}).encode()


def run(
    folder: Path, *exports: bytes, env: dict[str, str] | None = None, more: dict[str, Any] | None = None
) -> Verdict:
    names = []
    for number, export in enumerate(exports):
        names.append(f"spans{number}.json")
        (folder / names[-1]).write_bytes(export)
    (folder / "program.py").write_text(PROGRAM, "utf-8")
    agent = {"command": ["python", "program.py", *names], "spans": True, "env": env or {}}
    case_input = {"message": "Close order 7.", **(more or {})}
    path = folder / "close_001.yaml"
    path.write_text(dump({"agent": agent, "input": case_input, "expected_output": EXPECTED}), "utf-8")
    return run_case(load_case(path, root=folder), settings=Settings(root=folder))


def test_a_program_that_exports_spans_needs_no_other_glue(tmp_path: Path) -> None:
    """Its spans come in two batches, as an exporter sends them."""
    verdict = run(tmp_path, build_export(SPANS[:2]), build_export(SPANS[2:], first=2))
    assert verdict.status == PASSED, verdict.reasons
    transcript = verdict.transcript
    assert (transcript.response, transcript.calls[0].turn, transcript.calls[0].answered_by) == (
        *("Closed.", 0, "application"),
    )
    assert [turn.agent for turn in transcript.turns] == ["desk", "desk"]


def test_a_call_through_evalkits_functions_counts_once_and_is_mocked(tmp_path: Path) -> None:
    mocks = {"mock_function_responses": {"close_order": {"closed": True, "by": "mock"}}}
    verdict = run(tmp_path, build_export(SPANS), env={"CALL": "1"}, more=mocks)
    assert verdict.status == PASSED, verdict.reasons
    (call,) = verdict.transcript.calls
    assert (call.answered_by, call.result["by"]) == ("mock", "mock")


def test_a_wrong_call_in_the_spans_fails(tmp_path: Path) -> None:
    wrong = build_export(SPANS).replace(b'\\"order\\": 7', b'\\"order\\": 8')
    assert run(tmp_path, wrong).status == FAILED


@pytest.mark.parametrize(
    ("exports", "message"),
    [
        ((), "the agent exported no spans; it must export them before it ends"),
        ((build_export(SPANS[:2]),), "the agent's spans: it holds no answer to close_order"),
        ((build_export([SPANS[2]]),), "the agent's spans: it holds no arguments of close_order"),
    ],
)
def test_spans_that_do_not_tell_the_run_are_an_error(exports: tuple[bytes, ...], message: str, tmp_path: Path) -> None:
    """Whatever the program prints."""
    verdict = run(tmp_path, *exports, env={"SAYS": "closed"})
    assert (verdict.status, verdict.reasons[0].code) == (ERROR, "incomplete_trace")
    assert verdict.reasons[0].message.startswith(message)


def test_exports_are_taken_as_json_protobuf_and_gzip() -> None:
    pytest.importorskip("opentelemetry.proto")
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    message = ExportTraceServiceRequest()
    message.resource_spans.add().scope_spans.add().spans.add(name="chat")
    receiver = SpanReceiver()
    packed = gzip.compress(message.SerializeToString())
    headers = {"content-type": "application/x-protobuf", "content-encoding": "gzip"}
    assert receiver.receive("v1/traces", headers, packed) == ("application/x-protobuf", b"")
    assert receiver.receive("v1/traces", {"content-type": "application/json; charset=utf-8"}, b"{}")[1] == b"{}"
    assert receiver.receive("v1/metrics", headers, b"whatever") == ("application/x-protobuf", b"")
    assert receiver.exports == [{"resourceSpans": [{"scopeSpans": [{"spans": [{"name": "chat"}]}]}]}, {}]


SPACE = b" " * 9000


@pytest.mark.parametrize(
    ("headers", "body", "message"),
    [
        ({"content-type": "application/json"}, b"{", "Expecting"),
        ({"content-type": "application/json"}, b"[]", "the export is no JSON object"),
        ({"content-type": "application/x-protobuf"}, b"\\xff", "the export is no protobuf of OTLP"),
        ({"content-type": "application/json", "content-encoding": "gzip"}, b"x", "the export is no gzip"),
        ({"content-type": "application/json", "content-encoding": "br"}, b"x", "compressed by 'br'; expected gzip"),
        ({"content-type": "application/json", "content-encoding": "gzip"}, gzip.compress(SPACE, mtime=0), "too large"),
    ],
)
def test_an_export_that_is_none_is_refused_and_remembered(headers: dict[str, str], body: bytes, message: str) -> None:
    """A small body that unpacks to a large one, too."""
    receiver = SpanReceiver()
    set_bounds(Bounds(recording_bytes=5000))
    try:
        with pytest.raises(SpanError, match=message):
            receiver.receive("v1/traces", headers, body)
    finally:
        set_bounds(Bounds())
    assert (len(receiver.problems), receiver.exports) == (1, [])


def test_the_program_is_led_away_from_other_collectors() -> None:
    """Neither their addresses nor their keys reach it."""
    given = {"OTEL_EXPORTER_OTLP_HEADERS": "key=1", "OTEL_RESOURCE_ATTRIBUTES": "a=b"}
    found = build_span_environment("s/a_1.yaml[x, y]", "http://127.0.0.1:1/token", given)
    assert found["OTEL_EXPORTER_OTLP_ENDPOINT"] == "http://127.0.0.1:1/token/otlp"
    assert (found["OTEL_EXPORTER_OTLP_HEADERS"], found["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"]) == (None, None)
    assert found["OTEL_RESOURCE_ATTRIBUTES"] == "a=b,evalkit.case_id=s/a_1.yaml%5Bx%2C%20y%5D"
