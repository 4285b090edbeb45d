"""The scraping agent: what it asks, what it answers the model, and how its runs end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import evalkit
from evalkit.runner.run_case import run_case
from scenarios.scraping.agent import PROMPT
from tests.servers.replay import ReplayServer
from tests.suites.listening import overheard, sent
from tests.suites.suite import ROOT
from tests.suites.suites import SUITES

SCRAPING = SUITES["scraping"]


@pytest.fixture(scope="module")
def server() -> Iterator[ReplayServer]:
    running = ReplayServer()
    yield running
    running.close()


def test_the_request_is_the_wire_json_of_the_api(server: ReplayServer) -> None:
    """Both requests of a case with two calls: declarations, then calls and results in the order of the calls."""
    declared = SCRAPING.case("openai_stream_003").functions[0]
    _, requests = overheard(SCRAPING, "openai_stream_003")
    first, second = sent(server, requests)
    assert first == {
        "contents": [
            {
                "parts": [{"text": "Compare https://shop.example/kettle with https://shop.example/toaster."}],
                "role": "user",
            }
        ],
        "systemInstruction": {"parts": [{"text": PROMPT}], "role": "user"},
        "tools": [
            {
                "functionDeclarations": [
                    {
                        "name": "scrape_webpage",
                        "description": "Fetch web pages and give their text.",
                        "parameters_json_schema": declared.parameters,
                    }
                ]
            }
        ],
        "generationConfig": {"temperature": 0.0, "seed": 7},
    }
    _, model, results = second["contents"]
    assert [part["functionCall"]["id"] for part in model["parts"]] == ["call_a", "call_b"]
    assert [part["functionResponse"]["id"] for part in results["parts"]] == ["call_a", "call_b"]
    prices = [part["functionResponse"]["response"]["output"][0]["text"] for part in results["parts"]]
    assert prices == ["Kettle K2, 1.7 l, 49.90 EUR. In stock.", "Toaster T1, 2 slots, 39.00 EUR. Sold out."]


def test_a_text_call_is_answered_in_text() -> None:
    _, requests = overheard(SCRAPING, "text_stream_001")
    assert [message["role"] for message in requests[1].messages] == ["user", "model", "user"]
    assert requests[1].messages[-1]["text"].startswith("scrape_webpage gave: [{'url': 'https://shop.example/kettle'")


def test_a_failure_is_told_to_the_model() -> None:
    _, requests = overheard(SCRAPING, "failing_page_001")
    ((_, value),) = requests[1].messages[-1]["results"]
    assert value == {"error": {"type": "timeout", "message": "shop.example did not answer within 20 s"}}


def test_calls_are_made_as_they_become_whole_and_answered_in_the_order_in_which_they_began() -> None:
    """The first of three calls becomes whole after the second."""

    def piece(index: int, arguments: str, **more: Any) -> dict[str, Any]:
        return {
            "tool_calls": [{"index": index, **more, "function": {"name": "scrape_webpage", "arguments": arguments}}]
        }

    stream = [
        piece(0, '{"urls": ["https://one', id="c0"),
        piece(1, '{"urls": ["https://two.example"]}', id="c1"),
        piece(2, '{"urls": ["https://three', id="c2"),
        piece(0, '.example"]}'),
        piece(2, '.example"]}'),
        {"finish_reason": "tool_calls"},
    ]
    script = evalkit.ScriptedProvider([{"stream": {"openai": stream}}, "Done."])
    settings = evalkit.Settings(root=ROOT, extra={"provider": lambda case_id, run: script})
    verdict = run_case(SCRAPING.case("openai_stream_001"), settings=settings)
    assert [call.call_id for call in verdict.transcript.calls] == ["c1", "c0", "c2"]
    answered = script.requests[1].messages[-1]["results"]
    assert [call.call_id for call, _ in answered] == ["c0", "c1", "c2"]


def test_a_model_that_never_stops_calling_is_stopped() -> None:
    again = {"calls": [{"scrape_webpage": {"urls": ["https://shop.example/kettle"]}}]}
    script = evalkit.ScriptedProvider([again] * 6)
    settings = evalkit.Settings(root=ROOT, extra={"provider": lambda case_id, run: script})
    verdict = run_case(SCRAPING.case("openai_stream_001"), settings=settings)
    assert verdict.transcript.stop_reason == "max_iterations"
    assert len(verdict.transcript.turns) == 5
