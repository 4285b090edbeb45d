"""Recorded runs as evidence: what a damaged, cut or strange recording has lost makes no case green."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from evalkit.agents.remote import http_server
from evalkit.agents.remote.http_client import get_peer
from evalkit.agents.remote.server import FunctionsServer, ServedTask
from evalkit.features.programs.spans import SpanError, SpanReceiver
from evalkit.hosts.traces.evidence import match_answers
from evalkit.hosts.traces.log_formats import Conversation, FunctionAnswer, ModelReply
from evalkit.hosts.traces.read_log import read_log
from evalkit.records.unobserved import UnseenParts
from evalkit.records.verdict import ERROR, FAILED, PASSED, Verdict
from tests.attack.forms import choose
from tests.attack.recordings import (
    AGENT,
    BAD,
    FINAL,
    GOOD,
    RECORDINGS,
    ask,
    build_chat,
    build_span,
    build_tool,
    list_damaged,
    wrap,
)
from tests.features.recorded_runs.test_agent import CHAT, CLOSED, judge

Spans = list[dict[str, Any]]
STRANGE_CHAT = {"gen_ai.output.messages": [{"role": "assistant", "parts": [ask(BAD, {}, "c9")]}]}


def judge_spans(folder: Path, text: str, expected: dict[str, Any] | None = None, ending: str = ".json") -> Verdict:
    (folder / f"spans{ending}").write_text(text, "utf-8")
    return judge(folder, CHAT, expected or CLOSED, {"trace": f"../spans{ending}"})


def with_tokens(count: str) -> Spans:
    counts = {"gen_ai.usage.input_tokens": count, "gen_ai.usage.output_tokens": "5"}
    return [{**span, "attributes": [*span["attributes"], *build_span("9", counts)["attributes"]]} for span in GOOD]


def with_times(start: str, end: str) -> Spans:
    return [{**span, "startTimeUnixNano": start, "endTimeUnixNano": end} for span in GOOD]


# Spans whose agent also called BAD, or could have; or that don't hold what is demanded.
SPANS: dict[str, Spans] = {
    "a request that stands in itself": [*GOOD, build_chat("9", ask(BAD, {}, "c9"), parent="9")],
    "a function that stands in itself": [*GOOD, build_tool("9", BAD, {}, parent="9")],
    "requests in a circle": [
        *GOOD,
        build_chat("8", ask(BAD, {}, "c8"), parent="9"),
        build_chat("9", ask(BAD, {}, "c9"), parent="8"),
    ],
    "a request in another one": [*GOOD, build_chat("4", ask(BAD, {}, "c4"), parent="3")],
    "requests in one that asks for more": [
        AGENT,
        build_chat("1", ask(BAD, {}, "c4")),
        build_chat("2", ask("close_order", {"order": 7}), parent="1"),
        build_tool("3", "close_order", {"order": 7}),
        build_chat("4", FINAL, parent="1"),
    ],
    "a function in itself, of another order": [
        *GOOD[:3],
        build_tool("5", "close_order", {"order": 9}, parent="2"),
        GOOD[3],
    ],
    "a function without a name": [*GOOD, build_span("9", {"gen_ai.operation.name": "execute_tool"})],
    "a function whose span alone has its name": [
        *GOOD,
        build_span("9", {"gen_ai.operation.name": "execute_tool"}, name=f"execute_tool {BAD}"),
    ],
    "an operation in another case": [*GOOD, build_span("9", {"gen_ai.operation.name": "Chat", **STRANGE_CHAT})],
    "an operation that nobody knows": [*GOOD, build_span("9", {"gen_ai.operation.name": "ask", **STRANGE_CHAT})],
    "a function's operation that nobody knows": [
        *GOOD,
        build_span("9", {"gen_ai.operation.name": "run", "gen_ai.tool.name": BAD}),
    ],
    "no operation": [*GOOD, build_span("9", STRANGE_CHAT)],
    "a reply without its content": [*GOOD[:3], build_chat("3"), build_chat("4", FINAL)],
    "a last request that failed": [*GOOD[1:3], build_chat("3", status={"code": 2, "message": "overloaded"})],
    "a second agent that failed": [
        *GOOD,
        build_span("8", {"gen_ai.operation.name": "invoke_agent"}, parent="", status={"code": 2}),
    ],
    "the name of another case": [*GOOD, build_chat("9", ask(BAD, {}), attributes={"evalkit.case_id": "other_001"})],
}


@pytest.mark.parametrize("spans", SPANS.values(), ids=SPANS)
def test_a_call_that_spans_tell_in_a_strange_way_is_not_lost(spans: Spans, tmp_path: Path) -> None:
    assert judge_spans(tmp_path, json.dumps(wrap(GOOD))).status == PASSED
    assert judge_spans(tmp_path, json.dumps(wrap(spans))).status in (FAILED, ERROR)


def test_spans_that_an_exporter_has_sent_twice_count_once(tmp_path: Path) -> None:
    assert judge_spans(tmp_path, json.dumps(wrap([*GOOD, *GOOD]))).status == PASSED


BUDGETS: dict[str, tuple[Spans, dict[str, Any]]] = {
    "an end before the start": (with_times("100", "5"), {"processing_time_ms": 1}),
    "no end": ([GOOD[0], *with_times("100", "105")[1:]], {"processing_time_ms": 1}),
    "negative tokens": (with_tokens("-5"), {"max_tokens": 20}),
    "more tokens than there are": (with_tokens("9" * 20), {"max_tokens": 20}),
}


@pytest.mark.parametrize(("spans", "demand"), BUDGETS.values(), ids=BUDGETS)
def test_a_time_or_a_count_that_can_not_be_is_not_known(spans: Spans, demand: dict[str, Any], tmp_path: Path) -> None:
    verdict = judge_spans(tmp_path, json.dumps(wrap(spans)), {**CLOSED, **demand})
    assert (verdict.status, verdict.reasons[0].code) == (ERROR, "not_measured")


LINES = "".join(json.dumps(wrap([span])) + "\n" for span in GOOD)
LINE = json.dumps(wrap([build_chat("9", ask(BAD, {}, "c9"))]))


@pytest.mark.parametrize(
    "line",
    [
        LINE[:-9],
        LINE.replace("resourceSpans", "resource_spans"),
        LINE.replace("scopeSpans", "scope_spans"),
        LINE.replace('"spans": [', '"spans": [[').replace("]}]}]}", "]]}]}]}"),
        "[1]",
    ],
    ids=["cut", "other names", "other names inside", "a list in a list", "no object"],
)
def test_a_record_that_can_not_be_read_could_be_of_the_run(line: str, tmp_path: Path) -> None:
    """Of the file that the case itself names, too."""
    assert judge_spans(tmp_path, LINES, ending=".jsonl").status == PASSED
    verdict = judge_spans(tmp_path, LINES + line, ending=".jsonl")
    assert (verdict.status, verdict.reasons[0].code) == (ERROR, "missing_trace")


def find_call(path: Path) -> str:
    """Return how a reader of the file learns of BAD; "" if not at all."""
    results = list(read_log(path))
    if not results or not all(isinstance(result, Conversation) for result in results):
        return "a problem"
    for run in (result for result in results if isinstance(result, Conversation)):
        events = run.events
        calls = [call for event in events if isinstance(event, ModelReply) for call in event.calls]
        calls += [event.direct for event in events if isinstance(event, FunctionAnswer) and event.direct]
        is_blank = any(isinstance(event, ModelReply) and event.is_blank and not event.calls for event in events[:-1])
        if any(BAD in call.name.lower() for call in calls) or any(match_answers(run)) or is_blank:
            return "a call, or an incomplete run"
    return ""


@pytest.mark.parametrize("name", RECORDINGS)
def test_no_damage_hides_a_call(name: str, tmp_path: Path) -> None:
    """Every key and every value of a recording, one by one: renamed, wrapped, of another type."""
    recording = RECORDINGS[name]
    path = tmp_path / ("run.jsonl" if isinstance(recording, list) else "run.json")
    lost = []
    for what, damaged in [("nothing", recording), *list_damaged(recording)][:: choose(7, 1)]:
        if BAD in json.dumps(damaged).lower():
            lines = damaged if isinstance(damaged, list) else [damaged]
            path.write_text("\n".join(map(json.dumps, lines)), "utf-8")
            lost += [] if find_call(path) else [what]
    assert lost == []


# What no trace holds.


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        (CHAT, {"expected_approvals": []}),
        (CHAT, {"forbidden_function_calls": [{"function_name": "close_order", "answered_by": "server"}]}),
        (CHAT[:3], {"response_body_excludes": "sorry"}),
        ([CHAT[0], *CHAT[2:]], {"forbidden_function_calls": "close_order"}),
    ],
    ids=["approvals", "who answered", "the response", "an answer without its call"],
)
def test_what_a_trace_does_not_hold_is_not_absent(messages: object, expected: dict[str, Any], tmp_path: Path) -> None:
    verdict = judge(tmp_path, messages, {"max_function_calls": 5, **expected})
    assert (verdict.status, verdict.reasons[0].code) == (ERROR, "incomplete_trace")


@pytest.mark.parametrize(
    ("policy", "code"),
    [
        ("{never: {function_name: close_order, approval: denied}}", "incomplete_trace"),
        ("{never: {function_name: close_order, answered_by: server}}", "incomplete_trace"),
        ("{must: {function_name: close_order, by: boss}}", "not_measured"),
        ("{never: refund, before: {function_name: close_order, by: boss}}", "not_measured"),
    ],
)
def test_a_policy_without_its_evidence_is_not_kept(policy: str, code: str, tmp_path: Path) -> None:
    (tmp_path / "scenarios").mkdir()
    (tmp_path / "scenarios/policies.yaml").write_text(f"calm: {policy}\n", "utf-8")
    verdict = judge(tmp_path, CHAT, CLOSED)
    assert (verdict.status, verdict.reasons[0].code) == (ERROR, code)


def test_a_policy_of_functions_that_were_not_called_needs_no_evidence(tmp_path: Path) -> None:
    (tmp_path / "scenarios").mkdir()
    text = "calm: {never: {function_name: refund, approval: denied}}\nboss: {never: {function_name: pay, by: boss}}\n"
    (tmp_path / "scenarios/policies.yaml").write_text(text, "utf-8")
    assert judge(tmp_path, CHAT, CLOSED).status == PASSED


# Exports of spans that don't arrive.

JSON = {"content-type": "application/json"}


@pytest.mark.parametrize(
    ("signal", "headers", "body"),
    [
        ("v1/traces/", JSON, b"{}"),
        ("V1/Traces", JSON, b"{}"),
        ("v1/profiles", JSON, b"{}"),
        ("v1/traces", JSON, b'{"resource_spans": []}'),
        ("v1/traces", JSON, b'{"resourceSpans": {"0": {}}}'),
        ("v1/traces", {**JSON, "content-encoding": "gzip"}, gzip.compress(b"{}", mtime=0) * 2),
        ("v1/traces", {}, b"{}"),
    ],
    ids=["a slash", "capitals", "profiles", "other names", "no list", "several gzips", "no type"],
)
def test_an_export_that_is_not_taken_is_remembered(signal: str, headers: dict[str, str], body: bytes) -> None:
    receiver = SpanReceiver()
    with pytest.raises(SpanError):
        receiver.receive(signal, headers, body)
    assert len(receiver.problems) == 1


async def send_too_much(writer: asyncio.StreamWriter) -> None:
    writer.write(b"x" * 2000)
    await writer.drain()
    await asyncio.sleep(0.1)


async def send_half(writer: asyncio.StreamWriter) -> None:
    writer.write(b"x" * 5)
    writer.close()
    await asyncio.sleep(0.1)


async def drip(writer: asyncio.StreamWriter) -> None:
    writer.write(b"x")
    await asyncio.sleep(0.1)


async def lose(signal: str, send: Callable[[asyncio.StreamWriter], Any]) -> list[str]:
    """Return the problems of a receiver to which an export of `signal` was sent by `send`."""
    spans = SpanReceiver()
    task = cast(ServedTask, SimpleNamespace(unseen_parts=UnseenParts()))
    async with FunctionsServer(task, endpoints={"otlp": spans}) as served:
        host, port = get_peer(served.functions_url)
        _, writer = await asyncio.open_connection(host, port)
        path = served.functions_url.partition(str(port))[2]
        head = f"POST {path}/otlp/v1/{signal} HTTP/1.1\r\nhost: x\r\ncontent-length: 2000\r\n\r\n"
        writer.write(head.encode())
        await send(writer)
    writer.close()
    return spans.problems


@pytest.mark.parametrize("send", [send_too_much, send_half, drip])
def test_an_export_that_does_not_arrive_is_remembered(
    send: Callable[[asyncio.StreamWriter], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is too large, it is cut off, or it is still on its way when the run ends. That of metrics may be lost."""
    monkeypatch.setattr(http_server, "MAX_BODY", 1000)
    monkeypatch.setattr(http_server, "SETTLE_S", 0.05)
    assert len(asyncio.run(lose("traces", send))) == 1
    assert asyncio.run(lose("metrics", send)) == []
