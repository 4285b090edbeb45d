"""The recipes agent: what the reader of the chat sees, and what goes out to the model."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import evalkit
from evalkit.runner.run_case import run_case
from evalkit.spec.load import case_from_dict
from scenarios.recipes.agent import INSTRUCTION, readable, recipes
from tests.servers.replay import ReplayServer
from tests.suites.listening import overheard, sent
from tests.suites.suite import ROOT
from tests.suites.suites import SUITES

FUNCTIONS = ["search_recipes", "set_timer"]
CALL = '<function>{"name": "search_recipes", "parameters": {"query": "leek"}}</function>'


@pytest.fixture(scope="module")
def server() -> Iterator[ReplayServer]:
    running = ReplayServer()
    yield running
    running.close()


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("Just words.", "Just words."),
        (f"Let me look.\n{CALL}\nOne moment.", "Let me look.\n\nOne moment."),
        (CALL, ""),
        ('Now. <function>{"name": "bake", "parameters": {}}</function>', "Now."),
        (f'{CALL}\n<function>{{"name": "bake", "parameters": {{}}}}</function> Done.', "Done."),
        ('Now. <function>{"name": "search_recipes", "param', "Now."),
        ("Write it in a <function> tag.", "Write it in a <function> tag."),
    ],
    ids=["prose", "around a call", "a call alone", "refused", "made and refused", "cut off", "a mention"],
)
def test_the_reader_sees_the_prose_and_no_call(text: str, seen: str) -> None:
    assert readable(text, FUNCTIONS) == seen


def test_the_chat_is_the_prose_of_every_reply() -> None:
    script = evalkit.ScriptedProvider([f"Let me look.\n{CALL}", CALL, "Soup."])
    data = {
        "input": {"message": "leek?", "mock_function_responses": {"search_recipes": []}},
        "expected_output": {"max_model_turns": 3},
    }
    settings = evalkit.Settings(root=ROOT, extra={"provider": lambda case_id, run: script})
    verdict = run_case(case_from_dict(data), recipes, settings)
    assert verdict.status == "passed"
    assert verdict.transcript.response == "Let me look.\n\nSoup."


def test_the_request_is_the_wire_json_of_the_api(server: ReplayServer) -> None:
    """The second request of a case: instruction, declarations, settings, and the conversation in text."""
    instruction = evalkit.load_instruction(INSTRUCTION)
    _, requests = overheard(SUITES["recipes"], "several_calls_001")
    body = sent(server, requests)[1]
    contents, tools = body.pop("contents"), body.pop("tools")
    assert body == {
        "systemInstruction": {"parts": [{"text": instruction.body}], "role": "user"},
        "generationConfig": {"temperature": 0.0, "seed": 7},
    }
    assert tools == [
        {
            "functionDeclarations": [
                {"name": each.name, "description": each.description, "parameters_json_schema": each.parameters}
                for each in instruction.available_functions or ()
            ]
        }
    ]
    assert [content["role"] for content in contents] == ["user", "model", "user"]
    assert contents[0]["parts"] == [{"text": "What leek dishes are there, and do I have potatoes?"}]
    assert contents[1]["parts"][0]["text"].startswith("First the recipes.\n<function>")
    assert contents[2]["parts"][0]["text"].startswith('<function_result>{"name": "search_recipes", "result": [')
