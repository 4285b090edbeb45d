"""What a logged conversation becomes: the files, and that they hold an agent to what happened."""

from __future__ import annotations

from typing import Any

import pytest

from evalkit.features.recorded_runs.importing import build_case_files
from evalkit.hosts.traces.log_formats import (
    Conversation,
    Event,
    FunctionAnswer,
    LoggedMessage,
    ModelReply,
    UnreadableLogError,
)
from evalkit.wire.records import Call
from evalkit.yamlfile.parse import load

CITY = {
    "name": "weather",
    "description": "Tells the weather.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


def made(*events: Event, agent: str | None = "desk", **more: Any) -> tuple[Any, Any, tuple[str, ...]]:
    """The case, the cassette and the notes."""
    files = build_case_files(Conversation(events=events, source="log.jsonl:1", **more), agent=agent, name="imported")
    return load(files.case, "case"), load(files.cassette, "cassette"), files.notes


def ask(name: str, call_id: str | None = None, **arguments: Any) -> Call:
    return Call(name=name, arguments=arguments, call_id=call_id)


def test_a_conversation_is_a_case_with_a_cassette() -> None:
    case, cassette, notes = made(
        LoggedMessage("Weather?"),
        ModelReply("Let me see.", (ask("weather", "c1", city="Paris"),)),
        FunctionAnswer({"sky": "clear"}, call_id="c1"),
        ModelReply("It is clear."),
        functions=(CITY,),
    )
    assert case == {
        "description": "Imported from log.jsonl:1",
        "agent": "desk",
        "functions": {"weather": {key: CITY[key] for key in ("description", "parameters")}},
        "input": {"message": "Weather?", "mock_function_responses": {"weather": {"sky": "clear"}}},
        "expected_output": {"expected_function_calls": [{"function_name": "weather", "arguments": {"city": "Paris"}}]},
    }
    assert cassette == {
        "turns": [
            {"calls": [{"name": "weather", "arguments": {"city": "Paris"}, "id": "c1"}], "text": "Let me see."},
            {"text": "It is clear."},
        ]
    }
    assert notes == ()


def test_without_an_agent_the_logs_own_instruction_is_one() -> None:
    conversation = Conversation(
        events=(LoggedMessage("Hi"), ModelReply("Hello.")),
        system="Be brief.\n",
        functions=(CITY,),
        source="log.jsonl:1",
    )
    files = build_case_files(conversation, agent=None, name="chat")
    assert load(files.case, "case")["agent"] == "chat.md"
    assert files.instruction is not None
    head, body = files.instruction.removeprefix("---\n").split("---\n", 1)
    assert load(head, "head") == {"name": "chat", "available_functions": [CITY]}
    assert body == "\nBe brief.\n"


def mocks(*calls: tuple[Call, FunctionAnswer | None]) -> Any:
    """The mocks of one reply with these calls."""
    answers = [answer for _, answer in calls if answer is not None]
    case, _, _ = made(
        LoggedMessage("Go"), ModelReply("", tuple(call for call, _ in calls)), *answers, ModelReply("Done.")
    )
    return case["input"]["mock_function_responses"]


def test_calls_that_differ_in_arguments_are_answered_by_them() -> None:
    """Calls made side by side may come in any order."""
    assert mocks(
        (ask("f", "1", id="A"), FunctionAnswer(1, call_id="1")),
        (ask("f", "2", id="B"), FunctionAnswer({"type": "gone", "message": "no B"}, call_id="2", failed=True)),
    ) == {
        "f": {
            "$match": [
                {"when": {"id": "A"}, "$return": 1},
                {"when": {"id": "B"}, "$error": {"type": "gone", "message": "no B"}},
            ]
        }
    }


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"id": "A"}, {"id": "A"}),
        ({"id": "A"}, {"id": "A", "more": True}),
        ({}, {"id": "A"}),
        ({"x": "{{ y }}"}, {"x": 1}),
    ],
    ids=["the_same", "one_holds_the_other", "none", "a_template"],
)
def test_other_calls_are_answered_one_after_another(first: dict[str, Any], second: dict[str, Any]) -> None:
    found = mocks(
        (ask("f", "1", **first), FunctionAnswer(1, call_id="1")),
        (ask("f", "2", **second), FunctionAnswer(2, call_id="2")),
    )
    assert found == {"f": {"$sequence": [{"$return": 1}, {"$return": 2}]}}


def test_equal_answers_are_one_mock() -> None:
    assert mocks(
        (ask("f", "1"), FunctionAnswer("x", call_id="1")), (ask("f", "2", a=1), FunctionAnswer("x", call_id="2"))
    ) == {"f": "x"}


def test_answers_find_their_call_by_id_then_by_name_then_by_order() -> None:
    by_id = mocks(
        (ask("f", "1"), FunctionAnswer("two", call_id="2")), (ask("g", "2"), FunctionAnswer("one", call_id="1"))
    )
    by_name = mocks((ask("f"), FunctionAnswer("two", name="g")), (ask("g"), FunctionAnswer("one", name="f")))
    by_order = mocks((ask("f"), FunctionAnswer("one")), (ask("g"), FunctionAnswer("two")))
    assert by_id == by_name == by_order == {"f": "one", "g": "two"}


def test_dollars_and_braces_stay_data() -> None:
    case, _, _ = made(
        LoggedMessage("Go"),
        ModelReply("", (ask("f", "1", query={"$gt": 3}, text="Dear {{ name }}"),)),
        FunctionAnswer({"$schema": "x"}, call_id="1"),
        ModelReply("Done."),
    )
    assert case["input"]["mock_function_responses"] == {"f": {"$literal": {"$schema": "x"}}}
    (call,) = case["expected_output"]["expected_function_calls"]
    assert call["arguments"] == {"query": {"$literal": {"$gt": 3}}, "text": {"$literal": "Dear {{ name }}"}}


def test_a_call_that_failed_and_one_that_broke_its_schema_are_expected_to() -> None:
    case, _, _ = made(
        LoggedMessage("Go"),
        ModelReply("", (ask("weather", "1", town="Paris"),)),
        FunctionAnswer("no such argument", call_id="1", failed=True),
        ModelReply("Sorry."),
        functions=(CITY,),
    )
    assert case["expected_output"]["expected_function_calls"] == [
        {"function_name": "weather", "arguments": {"town": "Paris"}, "outcome": "error", "valid": False}
    ]
    assert case["input"]["mock_function_responses"] == {
        "weather": {"$error": {"type": "error", "message": "no such argument"}}
    }


def test_a_call_by_code_is_expected_and_mocked() -> None:
    looked_up = FunctionAnswer({"id": 7}, direct=Call(name="look_up", arguments={"mail": "a@b"}))
    events = (LoggedMessage("Hi"), looked_up, ModelReply("Hello."))
    case, cassette, notes = made(*events)
    assert case["expected_output"] == {
        "expected_function_calls": [{"function_name": "look_up", "arguments": {"mail": "a@b"}}]
    }
    assert case["input"]["mock_function_responses"] == {"look_up": {"id": 7}}
    assert (cassette, notes) == ({"turns": [{"text": "Hello."}]}, ())
    with pytest.raises(UnreadableLogError, match="code called look_up, which no instruction does; name the agent"):
        made(*events, agent=None)


def test_a_conversation_without_calls_expects_none() -> None:
    case, cassette, _ = made(LoggedMessage("Hi"), ModelReply("Hello."))
    assert case["expected_output"] == {"expected_function_calls": []}
    assert "mock_function_responses" not in case["input"]
    assert cassette == {"turns": [{"text": "Hello."}]}


def test_several_messages_of_the_user_are_turns() -> None:
    case, _, _ = made(LoggedMessage("Hi"), ModelReply("Hello."), LoggedMessage("Bye"), ModelReply("Bye."))
    assert case["input"] == {"turns": ["Hi", "Bye"]}


def test_what_the_log_does_not_tell_is_noted() -> None:
    case, cassette, notes = made(
        LoggedMessage("Go"),
        ModelReply("", (ask("weather", "1", city="Paris"), ask("other", "2"))),
        FunctionAnswer("x", call_id="9"),
        FunctionAnswer("clear", call_id="1"),
        functions=(CITY, {"name": "bad name"}),
    )
    assert notes == (
        "an answer in the log belongs to no call, and is left out",
        "no answer to other is in the log; its mock answers null",
        "'bad name' is no name of a function, and is left out",
        "other was called, and is not declared in the log; any arguments are taken",
        "the log has no reply at its end; the cassette says '(The log ends here.)'",
    )
    assert case["input"]["mock_function_responses"] == {"weather": "clear", "other": None}
    assert case["functions"]["other"] == {"parameters": {"type": "object"}}
    assert cassette["turns"][-1] == {"text": "(The log ends here.)"}


@pytest.mark.parametrize(
    ("events", "message"),
    [
        ((ModelReply("Hello."),), "there is no message of a user in it"),
        ((LoggedMessage("Go"), ModelReply("", (ask(""),))), "'' was called, which is no name of a function"),
    ],
)
def test_what_makes_no_case_is_said(events: tuple[Event, ...], message: str) -> None:
    with pytest.raises(UnreadableLogError) as caught:
        made(*events)
    assert str(caught.value) == message


def test_tools_that_are_no_schema_are_said() -> None:
    broken = {"name": "f", "parameters": {"type": "object", "properties": {"x": {"type": 1}}}}
    with pytest.raises(UnreadableLogError, match=r"^tools: "):
        made(LoggedMessage("Go"), ModelReply("Done."), functions=(broken,))
