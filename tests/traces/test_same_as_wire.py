"""A log and a live reply of the same bytes hold the same calls and answers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from evalkit.hosts.traces.exchanges import CHAT, find_form, read_request, read_response
from evalkit.hosts.traces.log_formats import Event, FunctionAnswer, ModelReply, UnreadableLogError
from evalkit.wire.records import Answer, Call, Exchange, Item
from evalkit.wire.table import read_exchange
from tests.wire.test_kinds import PATHS, REQUESTS, SAME, UNREAD
from tests.wire.test_recorded_exchanges import CORPORA

CUT = "FirebaseExtended/vertexai-sdk-test-data:mock-responses/vertexai/streaming-success-quotes-escaped.txt#0"


def list_by_wire(items: tuple[Item, ...]) -> list[object]:
    """The calls and answers among items."""
    calls = [
        (i.name, i.arguments, i.malformed, i.call_id, i.carrier, i.request_id) for i in items if isinstance(i, Call)
    ]
    return [*calls, *((item.value, item.call_id, item.is_error) for item in items if isinstance(item, Answer))]


def list_by_log(events: list[Event]) -> list[object]:
    """The calls and answers among events."""
    calls = tuple(call for event in events if isinstance(event, ModelReply) for call in event.calls)
    answers = [(event.value, event.call_id, event.failed) for event in events if isinstance(event, FunctionAnswer)]
    return [*list_by_wire(calls), *answers]


def read_live(url: str, request: Any, status: int, content: str) -> Exchange:
    exchange = read_exchange("POST", url, json.dumps(request).encode(), status, content.encode())
    assert exchange is not None
    assert exchange.reply is not None
    return exchange


def log(content: str) -> Any:
    """A response as a log keeps it: its JSON, or its text."""
    try:
        return json.loads(content)
    except ValueError:
        return content


@pytest.mark.parametrize("name", CORPORA)
def test_recorded_exchanges_are_the_same_in_a_log(name: str, corpus: Any) -> None:
    wrong, count = [], 0
    for row in corpus(name):
        exchange = read_exchange(
            "POST", f"https://{row['host']}{row['path']}", json.dumps(row["request"] or {}).encode(),
            row["status"] or 200, row["raw"].encode(),
        )  # fmt: skip
        if exchange is None or exchange.reply is None or row["id"] == CUT:  # a stream that broke off is none
            continue
        form, said = find_form(row["request"] or {}) or CHAT, exchange.request.items
        count += 1
        try:
            replied = read_response(form, log(row["raw"]))
            asked = read_request(form, row["request"])[1] if row["request"] else []
        except UnreadableLogError as error:
            wrong.append(f"{row['id']}: {error}")
            continue
        if (list_by_log(replied), list_by_log(asked)) != (list_by_wire(exchange.reply.items), list_by_wire(said)):
            wrong.append(row["id"])

    assert wrong == []
    assert count > 150


def build_contents(whole: Any, events: list[Any]) -> list[str]:
    return [json.dumps(whole), "".join(f"data: {json.dumps(event)}\n\n" for event in events)]


@pytest.mark.parametrize("name", SAME)
def test_each_kind_of_call_is_the_same_in_a_log(name: str) -> None:
    api, whole, events, _ = SAME[name]
    request = REQUESTS.get(api, {"model": "m", "messages": []})
    for content in build_contents(whole, events):
        exchange = read_live(f"https://models.example.com{PATHS[api]}", request, 200, content)
        assert exchange.reply is not None
        replied = read_response(find_form(request) or CHAT, log(content))
        assert list_by_log(replied) == list_by_wire(exchange.reply.items)


@pytest.mark.parametrize("name", UNREAD)
def test_what_is_unread_live_is_no_reply_without_calls_in_a_log(name: str) -> None:
    """The dialects of logs know more forms of calls: what they read is a call; what nobody reads is an error."""
    api, values, _ = UNREAD[name]
    request = REQUESTS.get(api, {"model": "m", "messages": []})
    content = json.dumps(values[0]) if len(values) == 1 else build_contents(None, values)[1]
    try:
        replied = read_response(find_form(request) or CHAT, log(content))
    except UnreadableLogError:
        return
    assert any(event.calls for event in replied if isinstance(event, ModelReply))
