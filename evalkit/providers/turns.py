"""Model turns as people write them, whole or in pieces, in a cassette or in code, read strictly.

A turn has `calls` and `text`; a call is ``check_warranty: {serial_number: SN12345}``, or in the long form
``{name: check_warranty, arguments: {...}, id: c1}``, or a bare name. Arguments given as a string are taken as what the
model wrote: they must parse to a JSON object, otherwise the call is malformed, as it would be on the wire.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from evalkit.errors import (
    KeyPath,
    MissingCassetteError,
    PathProblem,
    UsageError,
    did_you_mean,
    format_path,
)
from evalkit.fields.reader import describe_unknown_key
from evalkit.jsonvalue import JsonObject, describe_value, parse_arguments
from evalkit.model.transcript import ModelCall, ModelRequest, ModelTurn, Usage
from evalkit.providers.base import Provider
from evalkit.providers.table import PROVIDERS
from evalkit.streaming import StreamAccumulator, to_wire_keys

TURN_KEYS = ("calls", "text", "finish_reason", "finish_message", "usage", "duration_ms", "model")
CALL_KEYS = ("name", "arguments", "id", "malformed")
USAGE_KEYS = ("input_tokens", "output_tokens", "reasoning_tokens", "cached_tokens", "total_tokens")
FINISH_REASONS = ("stop", "tool_calls", "length", "content_filter", "malformed_call", "empty", "truncated", "other")


def read_turn(data: object, path: KeyPath, problems: list[PathProblem]) -> ModelTurn:
    """Read a turn. Whatever is wrong with `data` is added to `problems`."""
    if isinstance(data, str):
        return ModelTurn(text=data)
    if not isinstance(data, Mapping):
        problems.append(PathProblem(path, f"a turn is a mapping with 'calls' or 'text', got {describe_value(data)}"))
        return ModelTurn()
    report_unknown_keys(data, TURN_KEYS, path, problems, "a turn")
    calls = _read_calls(data.get("calls"), (*path, "calls"), problems)
    if not {"calls", "text", "finish_reason"} & set(data):
        problems.append(PathProblem(path, "the turn says nothing; write 'calls:' or 'text:' (text: \"\" is an answer)"))
    turn = ModelTurn(
        text=read_text(data, "text", path, problems) or "",
        calls=calls,
        finish_reason=_read_finish(data, bool(calls), path, problems),
        finish_message=read_text(data, "finish_message", path, problems),
        usage=_read_usage(data.get("usage"), (*path, "usage"), problems),
        model=read_text(data, "model", path, problems),
    )
    time = data.get("duration_ms")
    if time is None:
        return turn
    if isinstance(time, bool) or not isinstance(time, (int, float)) or not 0 <= time < float("inf"):
        message = f"'duration_ms' is a number of milliseconds, got {describe_value(time)}"
        problems.append(PathProblem((*path, "duration_ms"), message))
        return turn
    return replace(turn, duration_ms=float(time))


def _read_calls(data: object, path: KeyPath, problems: list[PathProblem]) -> tuple[ModelCall, ...]:
    if data is None:
        return ()
    if not isinstance(data, (list, tuple)):
        hint = f"; write '- {next(iter(data))}: ...'" if isinstance(data, Mapping) and data else ""
        problems.append(PathProblem(path, f"'calls' is a list of calls, got {describe_value(data)}{hint}"))
        return ()
    calls = (_read_call(item, (*path, index), problems) for index, item in enumerate(data))
    return tuple(call for call in calls if call is not None)


def _read_call(data: object, path: KeyPath, problems: list[PathProblem]) -> ModelCall | None:
    if isinstance(data, str) and data:
        return ModelCall(name=data)
    if not isinstance(data, Mapping) or not data:
        problems.append(
            PathProblem(path, f"a call is 'name: {{arguments}}' or {{name, arguments, id}}, got {describe_value(data)}")
        )
        return None
    if isinstance(data.get("name"), str):
        report_unknown_keys(data, CALL_KEYS, path, problems, "a call")
        call = _build_call(data["name"], data.get("arguments"), (*path, "arguments"), problems)
        call_id = data.get("id")
        if call_id is not None and not isinstance(call_id, str):
            problems.append(PathProblem((*path, "id"), f"'id' is a string, got {describe_value(call_id)}; quote it"))
            call_id = None
        why = read_text(data, "malformed", path, problems)
        return ModelCall(
            name=call.name, arguments=call.arguments, call_id=call_id, malformed=why or call.malformed, raw=call.raw
        )
    if len(data) == 1:
        ((name, arguments),) = data.items()
        return _build_call(str(name), arguments, (*path, name), problems)
    if "name" in data:
        problems.append(
            PathProblem((*path, "name"), f"'name' is the function's name, got {describe_value(data['name'])}")
        )
    else:
        names = ", ".join(map(str, data))
        problems.append(PathProblem(path, f"one item is one call, got the keys {names}; start each call with '- '"))
    return None


def _build_call(name: str, arguments: object, path: KeyPath, problems: list[PathProblem]) -> ModelCall:
    if arguments is None:
        return ModelCall(name=name)
    if isinstance(arguments, str):
        value, why = parse_arguments(arguments)
        return ModelCall(name=name, arguments=arguments if why else value, malformed=why, raw=arguments)
    if not isinstance(arguments, Mapping):
        problems.append(PathProblem(path, f"arguments are a mapping, got {describe_value(arguments)}"))
        arguments = {}
    return ModelCall(name=name, arguments=arguments)


def _read_finish(data: JsonObject, has_calls: bool, path: KeyPath, problems: list[PathProblem]) -> str:
    default = "tool_calls" if has_calls else "stop"
    reason = read_text(data, "finish_reason", path, problems)
    if reason is not None and reason not in FINISH_REASONS:
        problems.append(
            PathProblem(
                (*path, "finish_reason"),
                f"unknown finish_reason '{reason}'{did_you_mean(reason, FINISH_REASONS)} "
                f"(one of {', '.join(FINISH_REASONS)})",
            )
        )
        return default
    return reason or default


def _read_usage(data: object, path: KeyPath, problems: list[PathProblem]) -> Usage | None:
    if data is None:
        return None
    if not isinstance(data, Mapping):
        problems.append(PathProblem(path, f"'usage' is a mapping of token counts, got {describe_value(data)}"))
        return None
    report_unknown_keys(data, USAGE_KEYS, path, problems, "usage")
    counts: dict[str, int] = {}
    for key in USAGE_KEYS:
        count = data.get(key, 0)
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            problems.append(PathProblem((*path, key), f"'{key}' is a number of tokens, got {describe_value(count)}"))
        else:
            counts[key] = count
    parts = counts.get("input_tokens", 0) + counts.get("output_tokens", 0) + counts.get("reasoning_tokens", 0)
    return Usage(**{**counts, "total_tokens": counts.get("total_tokens") or parts})


def read_text(data: JsonObject, key: str, path: KeyPath, problems: list[PathProblem]) -> str | None:
    """Read ``data[key]``, a string, or None if it is not there. Anything else is a problem."""
    value = data.get(key)
    if value is None or isinstance(value, str):
        return value
    problems.append(PathProblem((*path, key), f"'{key}' is text, got {describe_value(value)}; quote it"))
    return None


def report_unknown_keys(
    data: JsonObject, allowed: tuple[str, ...], path: KeyPath, problems: list[PathProblem], subject: str
) -> None:
    """Add a problem for each key of `data` that is not in `allowed`, with the nearest name."""
    for key in data:
        if key not in allowed:
            message = describe_unknown_key(key, subject, allowed, otherwise=f"; {subject} has {', '.join(allowed)}")
            problems.append(PathProblem((*path, key), message, at_key=True))


# -- replies in pieces
#
# A piece is a chunk (or `delta`) of OpenAI's chat completions, an event of Anthropic's messages, a chunk (or part) of
# Gemini's, or a piece of plain text. The turn is the one that the live provider makes of the same stream, so that a
# streamed reply and a whole one leave the same transcript.

FEEDS: dict[str, Callable[[StreamAccumulator, Any], None]] = {
    "openai": StreamAccumulator.feed,
    "anthropic": StreamAccumulator.feed_anthropic,
    "gemini": StreamAccumulator.feed_gemini,
    "text": StreamAccumulator.feed_text,
}


class Chunk(Struct, frozen=True):
    """A piece of a streamed reply. `wire` is ``openai``, ``anthropic``, ``gemini`` or ``text``; `data` its JSON."""

    wire: str
    data: Any

    def feed(self, accumulator: StreamAccumulator) -> None:
        """Hand the piece to an accumulator, by the method for its wire."""
        FEEDS[self.wire](accumulator, self.data)


def build_turn(chunks: Sequence[Chunk]) -> ModelTurn:
    """Read a whole stream. Calls that it never finished are not in the turn; `finish_message` then says so."""
    wire = chunks[0].wire
    if wire == "text":
        turn = ModelTurn(text="".join(chunk.data for chunk in chunks))
    else:
        # Cassettes may hold OpenAI's `delta` with a finish reason, or Gemini's part, alone.
        values = [to_wire_keys(chunk.data) if wire == "gemini" else chunk.data for chunk in chunks]
        for index, data in enumerate(values):
            if wire == "openai" and "choices" not in data:
                values[index] = {"choices": [{"delta": data, "finish_reason": data.get("finish_reason")}]}
            elif wire == "gemini" and {"text", "functionCall"} & set(data):
                values[index] = {"candidates": [{"content": {"role": "model", "parts": [data]}}]}
        turn = PROVIDERS[wire]().read_stream(values)
    calls = tuple(call if call.malformed is not None else replace(call, raw=None) for call in turn.calls)
    return replace(turn, calls=calls, raw=None, content=None)


def split_turn(turn: ModelTurn) -> Iterator[Chunk]:
    """Split a turn that came whole into as few pieces as possible: for providers and cassettes that don't stream."""
    if not turn.calls:
        yield Chunk("text", turn.text)
        return
    pieces = []
    for index, call in enumerate(turn.calls):
        arguments = str(call.arguments) if call.malformed else json.dumps(call.arguments, ensure_ascii=False)
        pieces.append({"index": index, "id": call.call_id, "function": {"name": call.name, "arguments": arguments}})
    yield Chunk("openai", {"content": turn.text, "tool_calls": pieces})
    yield Chunk("openai", {"finish_reason": turn.finish_reason})


async def fetch_pieces(provider: Provider, request: ModelRequest) -> AsyncGenerator[Chunk | ModelTurn]:
    """Fetch the reply to `request` in pieces, and the whole turn at last."""
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
    """Replay `turn` as the stream in which it came, or, without one, in whole pieces."""
    for chunk in chunks or split_turn(turn):
        yield chunk
    yield turn


# -- a hand-written turn under `stream:`

STREAM_TURN_KEYS = ("stream", "finish_reason", "usage", "duration_ms", "model")
_FORMS = "{openai: [...]}, {anthropic: [...]}, {gemini: [...]} or {text: [...]}"


def read_written_reply(data: object, path: KeyPath, problems: list[PathProblem]) -> tuple[ModelTurn, tuple[Chunk, ...]]:
    """Read a turn, and the pieces in which it comes; none if it comes whole."""
    if not isinstance(data, Mapping) or "stream" not in data:
        return read_turn(data, path, problems), ()
    chunks = read_chunks(data["stream"], (*path, "stream"), problems)
    for key in data:
        if key in TURN_KEYS and key not in STREAM_TURN_KEYS:
            message = f"'{key}' can't stand beside 'stream', which holds the whole reply"
            problems.append(PathProblem((*path, key), message, at_key=True))
    if "finish_reason" in data and chunks and chunks[0].wire != "text":
        message = f"a stream of '{chunks[0].wire}' says itself how it ends; leave 'finish_reason' out"
        problems.append(PathProblem((*path, "finish_reason"), message, at_key=True))
    rest = {key: value for key, value in data.items() if key not in TURN_KEYS}
    report_unknown_keys(rest, STREAM_TURN_KEYS, path, problems, "a streamed turn")
    extras = {key: data[key] for key in STREAM_TURN_KEYS[1:] if key in data}
    stated_turn = read_turn({"text": "", **extras}, path, problems)
    if not chunks:
        return stated_turn, ()
    turn = build_turn(chunks)
    finish = stated_turn.finish_reason if "finish_reason" in extras else turn.finish_reason
    usage, model = stated_turn.usage or turn.usage, stated_turn.model or turn.model
    return replace(turn, finish_reason=finish, usage=usage, model=model, duration_ms=stated_turn.duration_ms), chunks


def read_chunks(data: object, path: KeyPath, problems: list[PathProblem]) -> tuple[Chunk, ...]:
    """Read the pieces under a turn's `stream` key, ``{openai: [...]}``. What is wrong with them is added to
    `problems`."""
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
    chunks = []
    accumulator = StreamAccumulator()  # takes the pieces for a trial
    kind, expected_kind = (str, "text") if wire == "text" else (Mapping, "a mapping")
    for index, piece in enumerate(pieces):
        piece_path, chunk = (*path, wire, index), Chunk(wire, piece)
        if not isinstance(piece, kind):
            message = f"a piece of '{wire}' is {expected_kind}, got {describe_value(piece)}"
            problems.append(PathProblem(piece_path, message))
            continue
        try:
            chunk.feed(accumulator)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            reason = f"{type(error).__name__}: {error}"
            problems.append(PathProblem(piece_path, f"this is no piece of '{wire}' ({reason})"))
            continue
        chunks.append(chunk)
    return tuple(chunks)


# -- turns given in code, for tests of agents


class ScriptedProvider:
    """Answers with the given turns, one for each request, and keeps the requests in `requests`.

    A turn is a ModelTurn, a text, or a mapping as a cassette has it: ``{"calls": [{"send_email": {"to": "a@b.c"}}]}``.
    """

    name = "scripted"

    def __init__(self, turns: Iterable[ModelTurn | JsonObject | str]) -> None:
        problems: list[PathProblem] = []
        self._turns = tuple(
            (turn, ()) if isinstance(turn, ModelTurn) else read_written_reply(turn, ("turns", index), problems)
            for index, turn in enumerate(turns)
        )
        if problems:
            raise UsageError("\n".join(f"{format_path(problem.path)}: {problem.message}" for problem in problems))
        self.requests: list[ModelRequest] = []

    async def turn(self, request: ModelRequest) -> ModelTurn:
        """Return the next turn of the script. Raises MissingCassetteError when there is none left."""
        return self._take_turn(request)[0]

    def stream(self, request: ModelRequest) -> AsyncIterator[Chunk | ModelTurn]:
        """Return the next turn in pieces, and then whole."""
        return replay_pieces(*self._take_turn(request))

    def _take_turn(self, request: ModelRequest) -> tuple[ModelTurn, tuple[Chunk, ...]]:
        position = len(self.requests)
        self.requests.append(request)
        if position >= len(self._turns):
            raise MissingCassetteError(
                f"the script has {len(self._turns)} turns, and the agent asked for turn {position + 1}; "
                "add it to ScriptedProvider([...])"
            )
        return self._turns[position]

    async def aclose(self) -> None:
        """Nothing is held."""
