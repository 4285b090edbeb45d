"""Replies that come in pieces: the pieces as a cassette holds them, and the turn that they make.

A piece is what one of four wires brings: a chunk (or `delta`) of OpenAI's chat completions, an event of Anthropic's
messages, a chunk (or part) of Gemini's, or a piece of plain text. The turn is the one that the live provider makes of
the same stream, so that a streamed reply and a whole one leave the same transcript.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from evalkit.errors import IncompleteCallError, KeyPath, PathProblem, did_you_mean
from evalkit.model.transcript import ModelCall, ModelRequest, ModelTurn, Usage
from evalkit.providers.base import Provider
from evalkit.providers.turns import TURN_KEYS, describe_value, read_turn, report_unknown_keys
from evalkit.streaming.accumulate import StreamAccumulator
from evalkit.streaming.gemini_calls import to_wire_keys

FEEDS: dict[str, Callable[[StreamAccumulator, Any], None]] = {
    "openai": StreamAccumulator.feed,
    "anthropic": StreamAccumulator.feed_anthropic,
    "gemini": StreamAccumulator.feed_gemini,
    "text": StreamAccumulator.feed_text,
}
_ANTHROPIC_ENDS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
}


class Chunk(Struct, frozen=True):
    """One piece of a streamed reply. `wire` is ``openai``, ``anthropic``, ``gemini`` or ``text``; `data` its JSON."""

    wire: str
    data: Any

    def feed(self, accumulator: StreamAccumulator) -> None:
        """Hand the piece to an accumulator, by the method for its wire."""
        FEEDS[self.wire](accumulator, self.data)


def build_turn(chunks: Sequence[Chunk]) -> ModelTurn:
    """The turn that a whole stream makes. Calls that it never finished are not in it; `finish_message` then says so."""
    turn = _READERS[chunks[0].wire](chunks)
    calls = tuple(call if call.malformed is not None else replace(call, raw=None) for call in turn.calls)
    return replace(turn, calls=calls, raw=None, content=None)


def _read_openai(chunks: Sequence[Chunk]) -> ModelTurn:
    from evalkit.providers.openai.reply import read_stream

    return read_stream(_complete_chunk(chunk.data) for chunk in chunks)


def _complete_chunk(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """A chunk of the API; cassettes may hold its `delta` alone, with the finish reason in it."""
    if "choices" in data:
        return data
    return {"choices": [{"delta": data, "finish_reason": data.get("finish_reason")}]}


def _read_gemini(chunks: Sequence[Chunk]) -> ModelTurn:
    from evalkit.providers.gemini.reply import merge_chunks, read_reply

    return read_reply(merge_chunks(_complete_response(chunk.data) for chunk in chunks))


def _complete_response(data: Mapping[str, Any]) -> Any:
    """A chunk of the API; cassettes may hold its one part alone."""
    data = to_wire_keys(data)
    if {"text", "functionCall"} & set(data):
        return {"candidates": [{"content": {"role": "model", "parts": [data]}}]}
    return data


def _read_anthropic(chunks: Sequence[Chunk]) -> ModelTurn:
    accumulator = StreamAccumulator()
    for chunk in chunks:
        chunk.feed(accumulator)
    usage, model = _read_anthropic_usage(chunks)
    certain = accumulator.completed
    try:
        calls, broken = accumulator.close(), None
    except IncompleteCallError as error:
        calls, broken = certain, str(error)
    reason = accumulator.finish_reason
    if broken is None:
        finish = "truncated" if reason is None else _ANTHROPIC_ENDS.get(reason, "other")
    else:
        finish = {None: "truncated", "max_tokens": "length"}.get(reason, "malformed_call")
    return ModelTurn(
        text=accumulator.text,
        calls=tuple(ModelCall(name=call.name, arguments=call.arguments, call_id=call.id) for call in calls),
        finish_reason=finish,
        finish_message=broken,
        usage=usage,
        model=model,
    )


def _read_anthropic_usage(chunks: Sequence[Chunk]) -> tuple[Usage | None, str | None]:
    """What the reply took, and the model that said it."""
    counts: dict[str, int] = {}
    model = None
    for chunk in chunks:
        message = chunk.data.get("message") or {}
        model = message.get("model") or model
        usage_data = {**(message.get("usage") or {}), **(chunk.data.get("usage") or {})}
        counts |= {key: value for key, value in usage_data.items() if isinstance(value, int)}
    input_tokens, cached_tokens = counts.get("input_tokens", 0), counts.get("cache_read_input_tokens", 0)
    output_tokens = counts.get("output_tokens", 0)
    total = input_tokens + cached_tokens + counts.get("cache_creation_input_tokens", 0) + output_tokens
    usage = Usage(
        input_tokens=total - output_tokens, output_tokens=output_tokens, cached_tokens=cached_tokens, total_tokens=total
    )
    return usage if counts else None, model


def _read_text(chunks: Sequence[Chunk]) -> ModelTurn:
    return ModelTurn(text="".join(chunk.data for chunk in chunks))


_READERS: dict[str, Callable[[Sequence[Chunk]], ModelTurn]] = {
    "openai": _read_openai,
    "anthropic": _read_anthropic,
    "gemini": _read_gemini,
    "text": _read_text,
}


def split_turn(turn: ModelTurn) -> Iterator[Chunk]:
    """A turn that came whole, in as few pieces as it takes: for providers and cassettes that don't stream."""
    if not turn.calls:
        yield Chunk("text", turn.text)
        return
    pieces = [
        {"index": index, "id": call.call_id, "function": {"name": call.name, "arguments": _serialize_arguments(call)}}
        for index, call in enumerate(turn.calls)
    ]
    yield Chunk("openai", {"content": turn.text, "tool_calls": pieces})
    yield Chunk("openai", {"finish_reason": turn.finish_reason})


def _serialize_arguments(call: ModelCall) -> str:
    return str(call.arguments) if call.malformed else json.dumps(call.arguments, ensure_ascii=False)


async def fetch_pieces(provider: Provider, request: ModelRequest) -> AsyncGenerator[Chunk | ModelTurn]:
    """The reply to `request` in pieces, and the whole turn at last."""
    stream = getattr(provider, "stream", None)
    if stream is not None:
        async for piece in stream(request):
            yield piece
        return
    turn = await provider.turn(request)
    for chunk in split_turn(turn):
        yield chunk
    yield turn


async def replay_pieces(turn: ModelTurn, chunks: Iterable[Chunk]) -> AsyncIterator[Chunk | ModelTurn]:
    """`turn` as the stream in which it came, or, without one, in whole pieces."""
    for chunk in chunks or split_turn(turn):
        yield chunk
    yield turn


# A hand-written turn under `stream:`: the pieces of a reply, read strictly, and the turn that they make.

STREAM_TURN_KEYS = ("stream", "finish_reason", "usage", "duration_ms", "model")
_FORMS = "{openai: [...]}, {anthropic: [...]}, {gemini: [...]} or {text: [...]}"


def read_written_reply(data: Any, path: KeyPath, problems: list[PathProblem]) -> tuple[ModelTurn, tuple[Chunk, ...]]:
    """The turn that `data` describes, and the pieces in which it comes; none if it comes whole."""
    if not isinstance(data, Mapping) or "stream" not in data:
        return read_turn(data, path, problems), ()
    chunks = read_chunks(data["stream"], (*path, "stream"), problems)
    _check_keys(data, chunks, path, problems)
    extras = {key: data[key] for key in STREAM_TURN_KEYS[1:] if key in data}
    stated_turn = read_turn({"text": "", **extras}, path, problems)
    if not chunks:
        return stated_turn, ()
    turn = build_turn(chunks)
    finish = stated_turn.finish_reason if "finish_reason" in extras else turn.finish_reason
    usage, model = stated_turn.usage or turn.usage, stated_turn.model or turn.model
    return replace(turn, finish_reason=finish, usage=usage, model=model, duration_ms=stated_turn.duration_ms), chunks


def _check_keys(data: Mapping[str, Any], chunks: tuple[Chunk, ...], path: KeyPath, problems: list[PathProblem]) -> None:
    for key in data:
        if key in TURN_KEYS and key not in STREAM_TURN_KEYS:
            message = f"'{key}' can't stand beside 'stream', which holds the whole reply"
            problems.append(PathProblem((*path, key), message, at_key=True))
    if "finish_reason" in data and chunks and chunks[0].wire != "text":
        message = f"a stream of '{chunks[0].wire}' says itself how it ends; leave 'finish_reason' out"
        problems.append(PathProblem((*path, "finish_reason"), message, at_key=True))
    rest = {key: value for key, value in data.items() if key not in TURN_KEYS}
    report_unknown_keys(rest, STREAM_TURN_KEYS, path, problems, "a streamed turn")


def read_chunks(data: Any, path: KeyPath, problems: list[PathProblem]) -> tuple[Chunk, ...]:
    """The pieces under a turn's `stream` key, ``{openai: [...]}``. What is wrong with them is added to `problems`."""
    if not isinstance(data, Mapping) or len(data) != 1:
        problems.append(PathProblem(path, f"'stream' is one wire and its pieces, {_FORMS}, got {describe_value(data)}"))
        return ()
    ((wire, pieces),) = data.items()
    if wire not in FEEDS:
        hint = did_you_mean(wire, FEEDS) or f"; it is one of {', '.join(FEEDS)}"
        problems.append(PathProblem((*path, wire), f"unknown wire '{wire}' in 'stream'{hint}", at_key=True))
        return ()
    if not isinstance(pieces, list) or not pieces:
        problems.append(PathProblem((*path, wire), f"'{wire}' is a list of pieces, got {describe_value(pieces)}"))
        return ()
    return tuple(_read_pieces(wire, pieces, (*path, wire), problems))


def _read_pieces(wire: str, pieces: list[Any], path: KeyPath, problems: list[PathProblem]) -> Iterator[Chunk]:
    """Each piece that an accumulator takes."""
    accumulator = StreamAccumulator()
    kind, expected_kind = (str, "text") if wire == "text" else (Mapping, "a mapping")
    for index, piece in enumerate(pieces):
        chunk = Chunk(wire, piece)
        if not isinstance(piece, kind):
            problems.append(
                PathProblem((*path, index), f"a piece of '{wire}' is {expected_kind}, got {describe_value(piece)}")
            )
            continue
        try:
            chunk.feed(accumulator)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            reason = f"{type(error).__name__}: {error}"
            problems.append(PathProblem((*path, index), f"this is no piece of '{wire}' ({reason})"))
            continue
        yield chunk
