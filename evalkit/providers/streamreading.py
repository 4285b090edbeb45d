"""A hand-written turn under `stream:`: the pieces of a reply, read strictly, and the turn that they make."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from evalkit.errors import PathProblem, did_you_mean
from evalkit.model.transcript import ModelTurn
from evalkit.providers.stream import StreamAccumulator
from evalkit.providers.streamed import FEEDS, Chunk, build_turn
from evalkit.providers.turns import TURN_KEYS, KeyPath, describe_value, read_turn, report_unknown_keys

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
