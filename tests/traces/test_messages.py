"""Messages are read in every dialect, and what could be a call in none of them is an error, never nothing."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from evalkit.hosts.traces.exchanges import read_exchange
from evalkit.hosts.traces.log_formats import Event, FunctionAnswer, LoggedMessage, ModelReply, UnreadableLogError
from evalkit.hosts.traces.messages import read_messages
from evalkit.wire.reading import allow_items
from evalkit.wire.records import SERVICE, Call

CALL = Call(name="get_weather", arguments={"city": "Paris"}, call_id="c1")
ASKS = ModelReply("", (CALL,))


def read(messages: list[Any]) -> list[Event]:
    """The events of messages; of calls without the text of their arguments."""
    _, events = read_messages(messages)
    return [
        replace(event, calls=tuple(replace(call, raw=None, malformed=call.malformed and "x") for call in event.calls))
        if isinstance(event, ModelReply)
        else event
        for event in events
    ]


FUNCTION = {"name": "get_weather", "arguments": '{"city": "Paris"}'}


@pytest.mark.parametrize(
    "message",
    [
        {"tool_calls": [{"id": "c1", "function": FUNCTION}]},
        {"tool_calls": [{"id": "c1", "function": FUNCTION}], "function_call": {"name": "", "arguments": ""}},
        {"tool_calls": [{"id": "c1", "name": "get_weather", "args": {"city": "Paris"}}]},
        {"additional_kwargs": {"tool_calls": [{"id": "c1", "function": FUNCTION}]}, "content": ""},
        {"content": [{"type": "tool_use", "id": "c1", "name": "get_weather", "input": {"city": "Paris"}}]},
        {"content": [{"type": "tool-call", "toolCallId": "c1", "toolName": "get_weather", "input": {"city": "Paris"}}]},
        {"content": [{"toolCallId": "c1", "toolName": "get_weather", "args": '{"city": "Paris"}'}]},
        {"content": [{"toolUse": {"toolUseId": "c1", "name": "get_weather", "input": {"city": "Paris"}}}]},
        {"parts": [{"type": "tool_call", "id": "c1", **FUNCTION}]},
        {"parts": [{"functionCall": {"id": "c1", "name": "get_weather", "args": {"city": "Paris"}}}]},
        {"content": [{"type": "function_call", "id": "fc_1", "call_id": "c1", **FUNCTION}]},
        {"content": [{"id": "c1", **FUNCTION}], "thought": None, "source": "desk"},
    ],
)
def test_a_call_is_read_in_every_dialect(message: dict[str, Any]) -> None:
    events = read([{"role": "assistant", **message}])
    assert [event for event in events if event != ModelReply("")] == [ASKS]


@pytest.mark.parametrize(
    "part",
    [
        {"type": "tool-get_weather", "input": {"city": "Paris"}},
        {"type": "dynamic-tool", "toolName": "get_weather", "input": {"city": "Paris"}},
        {"type": "tool-invocation", "toolInvocation": {"toolName": "get_weather", "args": {"city": "Paris"}}},
    ],
)
@pytest.mark.parametrize("is_answered", [True, False])
def test_a_chat_of_the_ai_sdk_holds_calls_and_answers_in_one_part(part: dict[str, Any], is_answered: bool) -> None:
    state = {"state": "output-available", "output": {"sky": "clear"}} if is_answered else {"state": "input-streaming"}
    told = {"toolCallId": "c1", **state}
    inner = part.get("toolInvocation")
    part = {**part, "toolInvocation": {**inner, **told}} if inner else {**part, **told}
    _, events = read_messages([{"role": "assistant", "parts": [{"type": "step-start"}, part]}])
    assert events == [ASKS, *([FunctionAnswer({"sky": "clear"}, "c1", "get_weather")] if is_answered else [])]


@pytest.mark.parametrize(
    "message",
    [
        {"invalid_tool_calls": [{"id": "c1", "name": "pay", "args": '{"sum": 1'}]},
        {"tool_calls": [{"id": "c1", "function": {"name": "pay", "arguments": '{"sum": 1'}}]},
        {"content": [{"type": "tool_use", "id": "c1", "name": "pay", "input": '{"sum": 1'}]},
    ],
)
def test_arguments_that_are_no_json_are_what_the_model_wrote(message: dict[str, Any]) -> None:
    events = read([{"role": "assistant", **message}])
    assert events == [ModelReply("", (Call(name="pay", arguments='{"sum": 1', call_id="c1", malformed="x"),))]


@pytest.mark.parametrize(
    ("message", "event"),
    [
        (
            {"role": "assistant", "tool_calls": [{"id": "c1", "function": {"name": "get_weather"}}]},
            ModelReply("", (Call(name="get_weather", arguments=None, call_id="c1"),)),
        ),
        ({"role": "assistant", "finish_reason": "stop"}, ModelReply(is_blank=True)),
        ({"role": "assistant", "content": None}, ModelReply()),
        ({"role": "tool", "tool_call_id": "c1"}, FunctionAnswer("", "c1", is_missing=True)),
        ({"role": "tool", "tool_call_id": "c1", "content": None}, FunctionAnswer("", "c1")),
        (
            {"role": "assistant", "parts": [{"functionCall": {"name": "get_weather"}}]},
            ModelReply("", (Call(name="get_weather", arguments={}),)),
        ),
    ],
)
def test_what_was_recorded_without_its_content_is_not_known(message: dict[str, Any], event: object) -> None:
    assert read_messages([message])[1] == [event]


def test_ids_of_items_and_of_calls_belong_together_in_their_order() -> None:
    """As OpenLLMetry writes them down for OpenAI's responses. One call without its answer tells nothing."""
    calls = [{"type": "tool_call", "id": f"fc_{n}", "name": "f", "arguments": {"n": n}} for n in (1, 2)]
    answers = [{"role": "tool", "parts": [{"type": "tool_call_response", "id": f"c{n}", "result": n}]} for n in (1, 2)]
    _, events = read_messages([{"role": "assistant", "parts": calls}, *answers])
    found = [(event.call_id, event.value) for event in events if isinstance(event, FunctionAnswer)]
    assert found == [("fc_1", 1), ("fc_2", 2)]
    _, events = read_messages([{"role": "assistant", "parts": calls}, answers[0]])
    assert [event.call_id for event in events if isinstance(event, FunctionAnswer)] == ["c1"]


def test_a_call_that_stands_in_the_content_and_beside_it_is_one() -> None:
    """LangChain repeats Anthropic's blocks in `tool_calls`."""
    block = {"type": "tool_use", "id": "c1", "name": "get_weather", "input": {"city": "Paris"}}
    beside = {"id": "c1", "name": "get_weather", "args": {"city": "Paris"}}
    _, events = read_messages([{"type": "ai", "content": ["Let me see.", block], "tool_calls": [beside]}])
    assert events == [ModelReply("Let me see."), ASKS]


ANSWER = FunctionAnswer({"sky": "clear"}, "c1")


@pytest.mark.parametrize(
    "message",
    [
        {"role": "tool", "tool_call_id": "c1", "content": '{"sky": "clear"}'},
        {"role": "tool", "tool_call_id": "c1", "content": {"sky": "clear"}},
        {"role": "tool", "tool_call_ids": ["c1"], "content": [{"type": "text", "text": '{"sky": "clear"}'}]},
        {"role": "get_weather", "tool_call_id": "c1", "content": '{"sky": "clear"}'},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": '{"sky": "clear"}'}]},
        {"role": "user", "content": [{"toolResult": {"toolUseId": "c1", "content": [{"json": {"sky": "clear"}}]}}]},
        {"type": "FunctionExecutionResultMessage", "content": [{"call_id": "c1", "content": '{"sky": "clear"}'}]},
        {"role": "user", "parts": [{"type": "tool_call_response", "id": "c1", "result": {"sky": "clear"}}]},
        {
            "role": "tool",
            "content": [
                {"type": "tool-result", "toolCallId": "c1", "output": {"type": "json", "value": {"sky": "clear"}}}
            ],
        },
    ],
)
def test_an_answer_is_read_in_every_dialect(message: dict[str, Any]) -> None:
    _, events = read_messages([message])
    (answer,) = events
    assert isinstance(answer, FunctionAnswer)
    assert (answer.value, answer.call_id, answer.failed) == ({"sky": "clear"}, "c1", False)


def test_a_declaration_among_the_messages_is_no_answer() -> None:
    """As Langfuse's handler for LangChain writes down the functions that a model was offered."""
    declared = {"type": "function", "function": {"name": "get_weather", "parameters": {}}}
    assert read_messages([{"role": "user", "content": "Hi"}, {"role": "tool", "content": declared}]) == (
        "",
        [LoggedMessage("Hi")],
    )


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        (
            {"role": "assistant", "content": [{"type": "action", "arguments": {"x": 1}}]},
            'it holds what evalkit can\'t read: openai_chat.part.action at messages[0].content[0]: {"type": "action", '
            '"arguments": {"x": 1}}\nIf it can hold no call of a function, say so in pyproject.toml, '
            '[tool.evalkit.http]: harmless = ["openai_chat.part.action"]',
        ),
        (
            {"role": "assistant", "content": "", "finish_reason": "tool_calls"},
            "a reply ended with 'tool_calls', and its calls were not recorded in a known form",
        ),
        (
            {"role": "assistant", "tool_calls": [{"id": "c1", "function": {"arguments": "{}"}}]},
            'a call has no name: {"id": "c1", "function": {"arguments": "{}"}}',
        ),
        (
            {"role": "narrator", "content": "x"},
            "a message has the role 'narrator'; expected system, user, assistant or tool",
        ),
        (
            {"role": "assistant", "content": "I look.\n```\nls\n```", "thought": "I look.", "action": "ls\n"},
            'it holds what evalkit can\'t read: openai_chat.message.action at messages[0].action: "ls\\n"\nIf it can '
            "hold no call of a function, say so in pyproject.toml, [tool.evalkit.http]: "
            'harmless = ["openai_chat.message.action"]',
        ),
        (
            {"role": "assistant", "content": "I look.", "extra": {"actions": [{"command": "ls"}]}},
            "it holds what evalkit can't read: openai_chat.message.actions at messages[0].extra.actions: "
            '[{"command": "ls"}]\nIf it can hold no call of a function, say so in pyproject.toml, [tool.evalkit.http]: '
            'harmless = ["openai_chat.message.actions"]',
        ),
        (
            {"role": "assistant", "content": "```mswea_bash_command\nls\n```"},
            "it holds what evalkit can't read: openai_chat.message.actions at messages[0].extra.actions: "
            '"```mswea_bash_command\\nls\\n```"\nIf it can hold no call of a function, say so in pyproject.toml, '
            '[tool.evalkit.http]: harmless = ["openai_chat.message.actions"]',
        ),
        ("role='user' content='Hi'", "a message is no JSON object: \"role='user' content='Hi'\""),
    ],
)
def test_what_could_be_a_call_and_cannot_be_read_is_an_error(message: object, problem: str) -> None:
    with pytest.raises(UnreadableLogError) as caught:
        read_messages([message])
    assert str(caught.value) == problem


@pytest.mark.parametrize(
    "message",
    [
        {"content": [{"type": "action", "arguments": {"x": 1}}, "Done."]},
        {"content": "Done.", "tool_use": {"x": 1}},
        {"content": "Done.", "function_call": {"name": "", "arguments": ""}},
    ],
)
def test_what_the_user_calls_harmless_is_passed_over(message: dict[str, Any]) -> None:
    with allow_items(("openai_chat.part.act*", "openai_chat.message.tool_use")):
        assert read([{"role": "assistant", **message}]) == [ModelReply("Done.")]


def test_calls_that_the_service_of_a_model_made_are_calls() -> None:
    """The responses API lists hosted searches and calls of MCP servers beside those of functions."""
    output = [
        {"type": "web_search_call", "id": "w1", "status": "completed", "action": {"query": "sky"}},
        {"type": "mcp_call", "id": "m1", "name": "look", "arguments": '{"up": true}', "output": "blue"},
        {"type": "custom_tool_call", "id": "x1", "call_id": "c9", "name": "sh", "input": "ls"},
        {"type": "custom_tool_call_output", "call_id": "c9", "output": "a.txt"},
        {"type": "reasoning", "summary": []},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Blue."}]},
    ]
    conversation = read_exchange("responses", {"input": "Sky?"}, {"output": output}, "log")
    calls = [call for event in conversation.events if isinstance(event, ModelReply) for call in event.calls]
    assert [(call.name, call.arguments) for call in calls] == [
        ("web_search", {"query": "sky"}),
        ("look", {"up": True}),
        ("sh", {"input": "ls"}),
    ]
    answers = [event for event in conversation.events if isinstance(event, FunctionAnswer)]
    assert [answer.value for answer in answers] == [None, "blue", "a.txt"]


def test_a_piece_of_a_stream_is_no_reply() -> None:
    delta = {"choices": [{"delta": {"content": "x"}}]}
    with pytest.raises(UnreadableLogError, match="a piece of a stream"):
        read_exchange("openai", {"messages": [{"role": "user", "content": "Hi"}]}, delta, "log")


def test_a_malformed_call_of_gemini_is_no_empty_reply() -> None:
    """What it asked for is not on record, so that no call could be judged."""
    candidate = {"content": {"role": "model"}, "finishReason": "MALFORMED_FUNCTION_CALL"}
    with pytest.raises(UnreadableLogError, match="ended with MALFORMED_FUNCTION_CALL"):
        read_exchange("gemini", {"contents": "Hi"}, {"candidates": [candidate]}, "log")


def test_code_that_gemini_ran_itself_is_a_call() -> None:
    parts = [{"executableCode": {"code": "1 + 1"}}, {"codeExecutionResult": {"output": "2"}}, {"text": "Two."}]
    response = {"candidates": [{"content": {"role": "model", "parts": parts}}]}
    _, called, answered, replied = read_exchange("gemini", {"contents": "1 + 1?"}, response, "log").events
    assert isinstance(called, ModelReply)
    assert [(c.name, c.arguments, c.carrier) for c in called.calls] == [("code_execution", {"code": "1 + 1"}, SERVICE)]
    assert isinstance(answered, FunctionAnswer)
    assert (answered.value, answered.name) == ({"output": "2"}, "code_execution")
    assert replied == ModelReply("Two.")
