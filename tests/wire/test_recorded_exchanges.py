"""Exchanges that others recorded: one table over all APIs."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from evalkit.wire.bodies import EventDecoder, read_values
from evalkit.wire.records import Exchange
from evalkit.wire.table import is_candidate, read_exchange

CORPORA = ["streams_openai", "streams_anthropic", "streams_gemini", "streams_compatible"]
APIS = {
    "chat.completions": "openai_chat",
    "responses": "openai_responses",
    "messages": "anthropic_messages",
    "generateContent": "gemini_content",
    "streamGenerateContent": "gemini_content",
}
# What the recorded results leave out: a name that the server sent twice, the client's search for tools, a call that the
# service refused; errors, and rows that are no turns.
KNOWN = ("test_tools_streaming_variant_a", "client_tool_search", "execution_client_round_trip", "tool_use_failed",
         "failure-", "error-", "generate-images", "token", "billable", "schema/")  # fmt: skip
ODD: list[Any] = [None, 5, 1.5, True, "x", "", "{}", [], [None], {}, {"a": 1}, {"name": "f", "arguments": "{"}]


def read(row: dict[str, Any], content: bytes | None = None) -> Exchange | None:
    body = json.dumps(row["request"] or {}).encode()
    url = f"https://{row['host']}{row['path']}"
    return read_exchange("POST", url, body, row["status"] or 200, row["raw"].encode() if content is None else content)


@pytest.mark.parametrize("name", CORPORA)
def test_each_is_read_by_its_api_with_its_calls_and_text_and_nothing_is_unread(name: str, corpus: Any) -> None:
    wrong, unread, count = [], [], 0
    for row in corpus(name):
        if row["status"] not in (200, None) or '"error"' in row["raw"][:20]:
            continue
        exchange = read(row)
        if exchange is None or exchange.reply is None:
            wrong.append(row["id"])
            continue
        count += 1
        calls = [(call.name, call.arguments) for call in exchange.reply.calls if call.carrier == "client"]
        wanted = [(call["name"], call["arguments"]) for call in row["final_calls"]]
        right = exchange.api == APIS[row["api"]] and calls == wanted
        if not right or exchange.reply.text != (row["final_text"] or ""):
            wrong.append(row["id"])
        unread += [f"{row['id']}: {item}" for item in exchange.list_unread()]
        assert is_candidate("POST", exchange.url, json.dumps(row["request"]).encode())

    assert [id for id in wrong if not any(known in id for known in KNOWN)] == []
    assert unread == []
    assert count > 150


@pytest.mark.parametrize("name", CORPORA)
def test_a_body_in_pieces_of_any_size_has_the_values_of_the_whole(name: str, corpus: Any) -> None:
    chance = random.Random(name)
    for row in corpus(name):
        body = row["raw"].encode()
        if len(body) > 100_000:
            continue
        size = chance.choice([1, 2, 3, 7, 128])
        decoder = EventDecoder()
        values = [v for at in range(0, len(body), size) for v in decoder.feed(body[at : at + size])]
        assert [*values, *decoder.close()] == read_values(body), row["id"]


def with_odd_values(data: Any, chance: random.Random) -> Any:
    """`data` with some of its values exchanged for others, and some of its keys gone."""
    if chance.random() < 0.03:
        return chance.choice(ODD)
    if isinstance(data, dict):
        return {key: with_odd_values(value, chance) for key, value in data.items() if chance.random() > 0.01}
    return [with_odd_values(value, chance) for value in data] if isinstance(data, list) else data


@pytest.mark.parametrize("name", CORPORA)
def test_mutated_exchanges_never_raise(name: str, corpus: Any) -> None:
    chance = random.Random(name)
    for row in corpus(name):
        if len(row["raw"]) > 60_000:
            continue
        values = [with_odd_values(value, chance) for value in read_values(row["raw"].encode())]
        content = "".join(f"data: {json.dumps(value)}\n\n" for value in values).encode()
        exchange = read({**row, "request": with_odd_values(row["request"], chance)}, content)
        assert exchange is None or isinstance(exchange, Exchange)
        body = row["raw"].encode()
        at = chance.randrange(len(body) + 1)
        read(row, body[:at] + bytes([chance.randrange(256)]) + body[at + chance.randrange(9) :])
