"""What goes out to the model for a warranty mail is the wire JSON of the API, from instruction to results."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import evalkit
from scenarios.warranty.agent import INSTRUCTIONS
from tests.servers.replay import ReplayServer
from tests.suites.listening import overheard, sent
from tests.suites.suites import SUITES


@pytest.fixture(scope="module")
def server() -> Iterator[ReplayServer]:
    running = ReplayServer()
    yield running
    running.close()


def test_the_requests_of_a_mail_are_the_wire_json_of_the_api(server: ReplayServer) -> None:
    instruction = evalkit.load_instruction(INSTRUCTIONS / "valid-warranty.md")
    _, requests = overheard(SUITES["warranty"], "valid_warranty_001")
    bodies = sent(server, requests)
    for body in bodies:
        contents, tools = body.pop("contents"), body.pop("tools")
        assert contents[0]["role"] == "user"
        assert contents[0]["parts"][0]["text"].startswith("From: Anna Berg <customer@example.com>\n")
        assert tools == [
            {
                "functionDeclarations": [
                    {"name": each.name, "description": each.description, "parameters_json_schema": each.parameters}
                    for each in instruction.available_functions or ()
                ]
            }
        ]
        assert body == {
            "systemInstruction": {"parts": [{"text": instruction.body}], "role": "user"},
            "generationConfig": {"temperature": 0.0, "seed": 7},
        }


def test_each_call_goes_back_with_its_result(server: ReplayServer) -> None:
    _, requests = overheard(SUITES["warranty"], "valid_warranty_001")
    last = sent(server, requests)[-1]["contents"]
    assert [content["role"] for content in last] == ["user", *["model", "user"] * 3]
    made = [content["parts"][0]["functionCall"]["name"] for content in last[1::2]]
    answered = [content["parts"][0]["functionResponse"] for content in last[2::2]]
    assert made == [response["name"] for response in answered] == ["check_warranty", "create_ticket", "send_email"]
    assert answered[0]["response"] == {
        "output": {"serial_number": "SN12345", "status": "valid", "expiration_date": "2025-12-31"}
    }
