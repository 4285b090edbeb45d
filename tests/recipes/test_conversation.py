"""What the model hears: results in text, its own calls in the standard form, the prose around them untouched."""

from __future__ import annotations

import pytest

import evalkit
from evalkit.records.transcript import ModelRequest
from tests.suites.listening import overheard, told
from tests.suites.suites import SUITES, passed

RECIPES = SUITES["recipes"]
TEXT_CASES = [stem for stem in RECIPES.stems if not stem.startswith(("not_a_call", "undeclared_name_002"))]


def said(request: ModelRequest) -> list[str]:
    """The model's own replies, as the conversation keeps them."""
    return [message["turn"].text for message in request.messages if message["role"] == "model"]


def test_the_history_holds_the_standard_form_whatever_the_model_wrote() -> None:
    _, requests = overheard(RECIPES, "conversation_001")
    assert said(requests[-1]) == [
        'Już szukam.\n<function>{"name": "search_recipes", "parameters": {"query": "pierogi"}}</function>',
        "Pierogi ruskie (R-415), 90 minut.",
        '<function>{"name": "add_to_shopping_list", "parameters": {"items": ["twaróg 500 g"]}}</function>',
    ]


def test_prose_around_the_calls_stays_where_it_was() -> None:
    _, requests = overheard(RECIPES, "several_calls_001")
    assert said(requests[-1]) == [
        "First the recipes.\n"
        '<function>{"name": "search_recipes", "parameters": {"query": "leek"}}</function>\n'
        "Then your pantry.\n"
        '<function>{"name": "list_pantry", "parameters": {}}</function>\n'
        "One moment."
    ]


def test_results_come_in_text_in_the_order_of_the_calls() -> None:
    _, requests = overheard(RECIPES, "several_calls_002")
    assert told(requests[1])[-1] == (
        '<function_result>{"name": "set_timer", "result": {"timer_id": "T-1", "minutes": 10}}</function_result>\n'
        '<function_result>{"name": "set_timer", "result": {"timer_id": "T-2", "minutes": 20}}</function_result>'
    )


def test_results_and_the_correction_come_in_one_message() -> None:
    _, requests = overheard(RECIPES, "mended_json_001")
    assert told(requests[1])[-1] == (
        '<function_result>{"name": "set_timer", "result": {"timer_id": "T-1", "minutes": 20}}</function_result>\n'
        "\n"
        'Write each function call exactly as <function>{"name": "...", "parameters": {...}}</function>. '
        "In your last reply:\n"
        "- set_timer: the closing tag was missing"
    )


def test_native_calls_are_answered_natively_and_text_calls_in_text() -> None:
    _, requests = overheard(RECIPES, "mixed_channels_001")
    assert [message["role"] for message in requests[-1].messages] == ["user", "model", "function", "model", "user"]
    assert told(requests[-1])[-1].startswith('<function_result>{"name": "get_recipe", "result": {"title"')


@pytest.mark.parametrize("stem", TEXT_CASES)
def test_no_request_ever_pairs_text_calls_with_native_results(stem: str) -> None:
    """APIs refuse a result whose call they have not seen."""
    _, requests = overheard(RECIPES, stem)
    for request in requests:
        for before, message in zip(request.messages, request.messages[1:], strict=False):
            if message["role"] == "function":
                assert [call for call, _ in message["results"]] == list(before["turn"].calls)


@pytest.mark.parametrize("stem", TEXT_CASES)
def test_the_transcript_says_that_the_calls_came_as_text_and_shows_the_reply_as_it_was(stem: str) -> None:
    _, verdict = passed("recipes")(stem)
    written = [turn.get("text", "") for turn in RECIPES.cassette(stem)["turns"]]
    assert [turn.text for turn in verdict.transcript.turns] == written
    for call in verdict.transcript.calls:
        assert call.turn is not None
        native = {made.name for made in verdict.transcript.turns[call.turn].calls}
        assert call.channel == ("native" if call.name in native else "text")


def test_the_trace_marks_calls_that_were_written_as_text() -> None:
    from evalkit.hosts.reports.trace import render_trace

    _, verdict = passed("recipes")("mixed_channels_001")
    shown = render_trace(verdict)
    assert '2. ✓ get_recipe(recipe_id="R-107") [written as text]' in shown
    assert shown.count("[written as text]") == 1


def test_a_case_that_asks_for_native_calls_fails_on_text_and_says_what_was_mended() -> None:
    case, verdict = passed("recipes")("mended_json_001")
    expected = {"expected_function_calls": [{"function_name": "set_timer", "channel": "native"}]}
    call = verdict.transcript.calls[0]
    made = {"name": call.name, "arguments": call.arguments, "channel": call.channel}
    judged = evalkit.judge(expected, [made], input=case.input)
    assert [(reason.code, reason.message) for reason in judged.reasons] == [
        ("wrong_channel", "call 1, set_timer: arrived by channel 'text', expected 'native'")
    ]
