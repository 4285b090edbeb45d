"""Agents that do not wait: each kind of haste is caught by cases of the suite, and the trace says what it did."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import evalkit
from evalkit.runner.run_case import run_case
from tests.suites.suite import ROOT
from tests.suites.suites import SUITES

SCRAPING = SUITES["scraping"]
FRAGMENTED = [  # native calls whose arguments come in more than one piece over OpenAI's wire
    stem
    for stem in SCRAPING.stems
    if any(
        sum("tool_calls" in str(piece) for piece in turn.get("stream", {}).get("openai", [])) > 1
        for turn in SCRAPING.cassette(stem)["turns"]
        if isinstance(turn, dict)
    )
]
Parser = Callable[[str], Any]


def first_that_parses(text: str) -> Any:
    """Whatever parses is taken for whole: right, until there is more of it."""
    try:
        return json.loads(text)
    except ValueError:
        return None


def mended(text: str) -> Any:
    """Closes what is open, as repairing parsers do: a cut-off URL becomes a URL."""
    for closers in ("", "}", "]}", '"]}', '"}'):
        found = first_that_parses(text + closers)
        if isinstance(found, dict) and found.get("urls"):
            return found
    return None


def fragments(data: Any) -> Iterator[tuple[int, str]]:
    deltas = [choice.get("delta") or {} for choice in data["choices"]] if "choices" in data else [data]
    for delta in deltas:
        for call in delta.get("tool_calls") or ():
            yield call["index"], call["function"].get("arguments", "")


def hasty(parse: Parser) -> Callable[[evalkit.Task], Any]:
    """An agent that makes a call as soon as `parse` makes something of its arguments."""

    async def agent(task: evalkit.Task) -> str:
        arguments: dict[int, str] = {}
        done: set[int] = set()
        request = evalkit.ModelRequest(functions=task.functions.declarations)
        async for chunk in task.stream(request):
            if chunk.wire != "openai":
                continue
            for index, fragment in fragments(chunk.data):
                arguments[index] = arguments.get(index, "") + fragment
                found = parse(arguments[index]) if index not in done else None
                if isinstance(found, dict):
                    done.add(index)
                    await task.acall("scrape_webpage", **found)
        return ""

    return agent


def verdict(stem: str, parse: Parser) -> evalkit.Verdict:
    return run_case(SCRAPING.case(stem), hasty(parse), evalkit.Settings(root=ROOT))


def test_the_suite_has_fragmented_calls() -> None:
    assert len(FRAGMENTED) >= 10


@pytest.mark.parametrize("stem", FRAGMENTED)
@pytest.mark.parametrize("parse", [first_that_parses, mended], ids=["first that parses", "mended"])
def test_haste_turns_the_case_red(stem: str, parse: Parser) -> None:
    assert verdict(stem, parse).status == "failed"


def test_a_mended_url_is_fetched_and_the_trace_shows_which() -> None:
    found = verdict("truncated_001", mended)
    assert [call.arguments for call in found.transcript.calls] == [{"urls": ["https://sh"]}]
    assert found.reasons[0].code == "unmocked_call"


def test_a_call_made_before_its_time_is_not_the_models() -> None:
    found = verdict("openai_stream_001", first_that_parses)
    assert [call.channel for call in found.transcript.calls] == ["direct"]
    assert "call 1, scrape_webpage: arrived by channel 'direct', expected 'native'" in [
        reason.message for reason in found.reasons
    ]


def test_a_placeholder_is_taken_for_arguments_by_who_does_not_wait() -> None:
    """The server sends `{}` first: whoever takes that for the arguments fetches nothing."""
    found = verdict("openai_stream_005", first_that_parses)
    assert found.transcript.calls[0].arguments == {}
