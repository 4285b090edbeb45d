"""No piece of any stream makes a call too early, and a reply leaves the same transcript streamed or whole."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import evalkit
from evalkit.agents.instruction import Instruction
from evalkit.models.cassettes.model import CassetteProvider, load_cassette
from evalkit.models.providers.turns import Chunk
from evalkit.models.streaming import StreamCall
from evalkit.records.transcript import ModelTurn
from evalkit.runner.run_case import run_case
from evalkit.yamlfile.write import dump
from scenarios.scraping.agent import PROMPT
from tests.suites.suite import ROOT
from tests.suites.suites import SUITES, passed

SCRAPING = SUITES["scraping"]
FUNCTIONS = ["scrape_webpage"]


@cache
def replies(stem: str) -> list[tuple[ModelTurn, tuple[Chunk, ...]]]:
    turns = load_cassette(SCRAPING.cassettes / f"{stem}.yaml").turns
    return [(turn.reply, turn.chunks) for turn in turns]


STREAMS = [(stem, index) for stem in SCRAPING.stems for index, (_, chunks) in enumerate(replies(stem)) if chunks]
every_stream = pytest.mark.parametrize(("stem", "index"), STREAMS, ids=[f"{stem}-{index}" for stem, index in STREAMS])


def fed(chunks: Sequence[Chunk]) -> evalkit.StreamAccumulator:
    accumulator = evalkit.StreamAccumulator(FUNCTIONS)
    for chunk in chunks:
        chunk.feed(accumulator)
    return accumulator


def final(chunks: Sequence[Chunk]) -> list[StreamCall]:
    """The calls of a whole stream: those that were finished, if it ended inside one."""
    accumulator = fed(chunks)
    try:
        return accumulator.close()
    except evalkit.IncompleteCall:
        return accumulator.completed


def crumbs(chunk: Chunk) -> Iterator[Chunk]:
    """A piece cut into single characters, wherever its wire allows it to be cut."""
    data = chunk.data
    if chunk.wire == "text":
        yield from (Chunk("text", character) for character in data)
    elif chunk.wire == "anthropic" and data.get("delta", {}).get("type") == "input_json_delta":
        for character in data["delta"]["partial_json"]:
            yield Chunk("anthropic", {**data, "delta": {**data["delta"], "partial_json": character}})
    elif chunk.wire == "openai" and len(data.get("tool_calls") or ()) == 1:
        (call,) = data["tool_calls"]
        function = call["function"]
        yield Chunk("openai", {"tool_calls": [{**call, "function": {**function, "arguments": ""}}]})
        for character in function.get("arguments", ""):
            yield Chunk("openai", {"tool_calls": [{"index": call["index"], "function": {"arguments": character}}]})
    elif chunk.wire == "gemini" and (data.get("functionCall") or {}).get("partialArgs"):
        yield from partial_crumbs(data["functionCall"])
    else:
        yield chunk


def partial_crumbs(call: dict[str, Any]) -> Iterator[Chunk]:
    (piece,) = call["partialArgs"]
    for character in piece.get("stringValue", ""):
        crumb = {"jsonPath": piece["jsonPath"], "stringValue": character, "willContinue": True}
        yield Chunk("gemini", {"functionCall": {"partialArgs": [crumb], "willContinue": True}})
    if "stringValue" not in piece:
        yield Chunk("gemini", {"functionCall": call})


@every_stream
def test_whatever_has_come_the_calls_so_far_are_calls_of_the_whole_stream(stem: str, index: int) -> None:
    _, chunks = replies(stem)[index]
    pieces = [crumb for chunk in chunks for crumb in crumbs(chunk)]
    expected = final(chunks)
    assert final(pieces) == expected
    for end in range(len(pieces)):
        assert [call for call in fed(pieces[:end]).completed if call not in expected] == []


def ended(chunks: Sequence[Chunk]) -> list[StreamCall]:
    """The calls of a stream that ends here; none if that is inside one, which must then be shown."""
    try:
        return fed(chunks).close()
    except evalkit.IncompleteCall as error:
        return [] if error.fragment else [StreamCall("no fragment", {})]


@every_stream
def test_a_stream_that_breaks_off_anywhere_gives_no_other_call(stem: str, index: int) -> None:
    """An empty object is the exception: a call without arguments looks like that, and nobody can tell."""
    _, chunks = replies(stem)[index]
    pieces = [crumb for chunk in chunks for crumb in crumbs(chunk)]
    expected = [(call.name, call.arguments) for call in final(chunks)]
    for end in range(len(pieces)):
        found = [(call.name, call.arguments) for call in ended(pieces[:end]) if call.arguments]
        assert found == expected[: len(found)]


@every_stream
def test_each_call_is_taken_once_and_all_are_taken(stem: str, index: int) -> None:
    _, chunks = replies(stem)[index]
    accumulator = evalkit.StreamAccumulator(FUNCTIONS)
    taken: list[StreamCall] = []
    for chunk in chunks:
        for crumb in crumbs(chunk):
            crumb.feed(accumulator)
            taken += accumulator.take()
    with contextlib.suppress(evalkit.IncompleteCall):
        accumulator.close()
    taken += accumulator.take()
    assert sorted(taken, key=str) == sorted(final(chunks), key=str)


# Parity.


def whole(turn: ModelTurn) -> dict[str, Any]:
    """The turn as a cassette without streams holds it."""
    calls = [{"name": call.name, "arguments": call.arguments, "id": call.call_id} for call in turn.calls]
    data = {"calls": calls, "text": turn.text, "finish_reason": turn.finish_reason, "duration_ms": turn.duration_ms}
    if turn.finish_message is not None:
        data["finish_message"] = turn.finish_message
    if turn.model is not None:
        data["model"] = turn.model
    if turn.usage is not None:
        data["usage"] = {key: getattr(turn.usage, key) for key in turn.usage.__struct_fields__}
    return data


def transcript(stem: str, cassette: Path, agent: Any = None) -> dict[str, Any]:
    provider = CassetteProvider(cassette, root=cassette.parent)
    settings = evalkit.Settings(root=ROOT, extra={"provider": lambda case_id, run: provider})
    data = run_case(SCRAPING.case(stem), agent, settings).transcript.to_json()
    data["timing"]["overhead_ms"] = 0
    return data


def unstreamed(stem: str, folder: Path) -> Path:
    path = folder / f"{stem}.yaml"
    path.write_text(dump({"turns": [whole(turn) for turn, _ in replies(stem)]}), encoding="utf-8")
    return path


CUT = {"malformed_call"}
FINISHED = [
    stem for stem in SCRAPING.stems if SCRAPING.load(stem)["expected_output"].get("stop_reason") not in CUT
]  # fmt: skip


@pytest.mark.parametrize("stem", FINISHED)
def test_a_reply_leaves_the_same_transcript_streamed_or_whole(stem: str, tmp_path: Path) -> None:
    streamed = SCRAPING.cassettes / f"{stem}.yaml"
    assert transcript(stem, streamed) == transcript(stem, unstreamed(stem, tmp_path))


@pytest.mark.parametrize("stem", SCRAPING.stems)
def test_the_function_calling_loop_can_not_tell_a_stream_from_a_whole_reply(stem: str, tmp_path: Path) -> None:
    async def loop(task: evalkit.Task) -> evalkit.Reply:
        return await task.run_instruction(Instruction(name="scraping", body=PROMPT))

    streamed = transcript(stem, SCRAPING.cassettes / f"{stem}.yaml", loop)
    assert streamed == transcript(stem, unstreamed(stem, tmp_path), loop)


@pytest.mark.parametrize("stem", sorted(set(SCRAPING.stems) - set(FINISHED)))
def test_what_is_cut_off_reaches_the_function_on_no_road(stem: str) -> None:
    """Neither through the agent nor through the loop: a cut-off URL is never fetched."""
    _, verdict = passed("scraping")(stem)
    wanted = [call["arguments"] for call in SCRAPING.load(stem)["expected_output"]["expected_function_calls"]]
    assert [call.arguments for call in verdict.transcript.calls] == wanted


@pytest.mark.parametrize("stem", ["truncated_001", "not_an_object_001", "not_an_object_002"])
def test_a_whole_reply_with_half_a_call_ends_the_same_way(stem: str) -> None:
    """Services that don't stream send what was written so far, and the finish reason."""
    _, streamed = passed("scraping")(stem)
    ((_, chunks),) = replies(stem)
    pieces = [call["function"].get("arguments", "") for chunk in chunks for call in chunk.data.get("tool_calls", ())]
    call = {"name": "scrape_webpage", "arguments": "".join(pieces), "id": "call_1"}
    reason = chunks[-1].data["finish_reason"]
    script = evalkit.ScriptedProvider([{"calls": [call], "finish_reason": reason}])
    settings = evalkit.Settings(root=ROOT, extra={"provider": lambda case_id, run: script})
    at_once = run_case(SCRAPING.case(stem), settings=settings)
    assert at_once.passed
    for name in ("calls", "response", "stop_reason"):
        assert getattr(at_once.transcript, name) == getattr(streamed.transcript, name)


def test_every_wire_has_streams_and_truncated_ones() -> None:
    wires = {
        (chunks[0].wire, stem.startswith("truncated"))
        for stem in SCRAPING.stems
        for _, chunks in replies(stem)
        if chunks
    }
    assert wires == {(wire, cut) for wire in ("openai", "anthropic", "gemini", "text") for cut in (False, True)}


def test_a_stream_is_read_while_it_comes() -> None:
    """The first call of two is made before the second has arrived."""
    made: list[int] = []

    async def watching(task: evalkit.Task) -> None:
        accumulator = evalkit.StreamAccumulator(FUNCTIONS)
        async for chunk in task.stream(evalkit.ModelRequest()):
            chunk.feed(accumulator)
            made.append(len(accumulator.take()))
            await asyncio.sleep(0)

    settings = evalkit.Settings(root=ROOT)
    run_case(SCRAPING.case("anthropic_stream_002"), watching, settings)
    assert made == [0, 0, 0, 1, 0, 0, 0, 1, 0]
