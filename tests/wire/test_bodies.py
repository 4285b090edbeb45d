"""Bodies in every form that services give them, in pieces of any size, and broken ones."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from evalkit.wire.bodies import EventDecoder, read_values, split_unread
from tests.wire.test_clients import encode_frames

A, B = {"a": 1}, {"b": "é\u2028"}
BODIES: dict[str, tuple[bytes, list[Any]]] = {
    "events": (b'data: {"a": 1}\n\ndata: {"b": "\xc3\xa9\xe2\x80\xa8"}\n\ndata: [DONE]\n\n', [A, B]),
    "events with names, comments and returns": (
        b': hi\r\nevent: x\r\ndata: {"a": 1}\r\n\r\nid: 5\r\ndata: {"b": "\xc3\xa9\xe2\x80\xa8"}\r\n\r\n', [A, B]
    ),
    "an event over two lines": (b'data: {"a":\ndata: 1}\n\n', [A]),
    "events without empty lines between": (b'data: {"a": 1}\ndata: {"a": 1}\n', [A, A]),
    "behind a mark of the byte order": (b'\xef\xbb\xbfdata: {"a": 1}\n\n', [A]),
    "one value behind it": (b'\xef\xbb\xbf{"a": 1}', [A]),
    "behind blanks": (b'  data: {"a": 1}\n\n', [A]),
    "lines": (b'{"a": 1}\n{"b": "\xc3\xa9\xe2\x80\xa8"}\n', [A, B]),
    "an array": (b'[{"a": 1},\n{"b": "\xc3\xa9\xe2\x80\xa8"}]', [A, B]),
    "one value over lines": (b'{\n "a": 1\n}', [A]),
    "an error behind events": (b'data: {"a": 1}\n\n{\n "b": "\xc3\xa9\xe2\x80\xa8"}\n', [A, B]),
    "frames": (encode_frames(("messageStart", A), ("metadata", B)), [{"messageStart": A}, {"metadata": B}]),
    "nothing": (b"", []),
}  # fmt: skip


@pytest.mark.parametrize(("body", "values"), BODIES.values(), ids=BODIES)
def test_a_body_has_its_values_in_pieces_of_any_size(body: bytes, values: list[Any]) -> None:
    for size in (1, 2, 3, 7, len(body) or 1):
        decoder = EventDecoder()
        read = [value for at in range(0, len(body), size) for value in decoder.feed(body[at : at + size])]
        assert [*read, *decoder.close()] == values


@pytest.mark.parametrize("body", [b"<html>", b'data: {"a": 1}\n\ndata: {"b":\n\n', b'{"a": 1}\n{"b":'])
def test_what_does_not_parse_is_unread_and_the_rest_is_read(body: bytes) -> None:
    values, unread = split_unread(read_values(body))

    assert values == ([] if b"html" in body else [A])
    assert len(unread) == 1


def test_an_event_of_a_stream_comes_out_as_soon_as_it_is_whole() -> None:
    decoder = EventDecoder()

    assert list(decoder.feed(b'data: {"a": 1}\n')) == []
    assert list(decoder.feed(b"\n")) == [A]


@pytest.mark.parametrize("charset", ["", "utf8", "UTF-8", "nonsense", "latin-1", "utf-16"])
def test_any_charset_is_taken(charset: str) -> None:
    text = json.dumps({"a": 1})
    assert read_values(text.encode("utf-16" if charset == "utf-16" else "utf-8"), charset) == [A]


def test_broken_frames_never_raise() -> None:
    chance = random.Random(1)
    body = encode_frames(*(("contentBlockDelta", {"n": number}) for number in range(3)))
    for _ in range(500):
        broken = bytearray(body)
        for _ in range(chance.randint(1, 6)):
            broken[chance.randrange(len(broken))] = chance.randrange(256)
        read_values(bytes(broken[: chance.randrange(len(broken) + 1)]))


def test_an_exception_within_frames_is_named() -> None:
    body = encode_frames(("throttlingException", {"message": "slow down"}))

    assert read_values(body) == [{"throttlingException": {"message": "slow down"}}]
    assert json.dumps(read_values(body))
