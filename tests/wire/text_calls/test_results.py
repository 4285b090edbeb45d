"""A result that a model repeats or makes up is no call and no malformed one, and hides no call behind it."""

from __future__ import annotations

from typing import Any

import pytest

from evalkit.models.streaming import StreamAccumulator
from evalkit.wire.text_calls import parse_text_calls

FUNCTIONS: list[dict[str, Any]] = [
    {"name": "ticket", "parameters": {"type": "object", "properties": {"serial": {"type": "string"}}}},
    {"name": "post", "parameters": {"type": "object", "properties": {"content": {"type": "string"}}}},
]
RESULT = '{"name": "ticket", "result": {"id": "T-1", "next": {"name": "post", "arguments": {"content": "a"}}}}'
CALL = '<function>{"name": "post", "parameters": {"content": "a"}}</function>'
RESULTS = [
    f"<function_result>{RESULT}",
    f"<function_result>{RESULT}</function_result>",
    f"<function_result>\n{RESULT}\nYour ticket is T-1.",
    f"<function_result>{RESULT}</function>",
    f'<tool_response name="ticket">{RESULT}',
    f"<tool_call_result>{RESULT}",
    f"<function-response>[{RESULT}]",
    f"<function_call_output>{RESULT}\n{RESULT}",
    f"<observation>{RESULT}",
    '<tool_output>{"name": "ticket", "arguments": {}}',
    '<function_result>{"name": "ticket", "result": T-1}',
    '<function_result>{"name": "ticket", "result": "T-1}\n',
    '<tool_response><tool_response>{"name": "ticket", "arguments": {}}</tool_response>',
    f"[TOOL_RESULTS]{RESULT}[/TOOL_RESULTS]",
    f"[TOOL_RESULTS] {RESULT}",
    f"<start_function_response>response:ticket{{a:{RESULT}}}<end_function_response>",
    f"<|tool_response>{RESULT}<tool_response|>",
    f"<｜tool▁outputs▁begin｜><｜tool▁output▁begin｜>{RESULT}<｜tool▁output▁end｜>",
    f"<|observation|>\n{RESULT}",
    f"Observation: {RESULT}",
    'ticket returned {"name": "ticket", "arguments": {}}',
    f"```tool_output\n{RESULT}\n```",
    f"```json\n{RESULT}\n```",
    f"<function>{RESULT}</function>",
    f"```json\n<function>{RESULT}",
    f"<tool_call>[{RESULT}]</tool_call>",
    '<function>{"name": "ticket", "result": T-1}</function>',
    f"[TOOL_CALLS][{RESULT}]",
    f"<|python_tag|>{RESULT}",
    RESULT,
    f"[{RESULT}]",
    f"{RESULT}\n{RESULT}",
    '{"name": "ticket", "id": 1, "content": "T-1"}',
    "{'name': 'ticket', 'output': 'T-1'}",
    '{"name": "ticket", "result": T-1}',
    '{"name": "ticket", "error": "there is none"}',
    '{"tool_name": "ticket", "tool_output": {"id": "T-1"}}',
    '{"ticket": {"result": {"id": "T-1"}}}',
]


@pytest.mark.parametrize("text", RESULTS)
def test_a_result_is_no_call_however_it_is_framed_and_cut(text: str) -> None:
    assert parse_text_calls(text, FUNCTIONS).unfinished is None
    for end in range(len(text) + 1):
        parsed = parse_text_calls(text[:end], FUNCTIONS)
        assert (parsed.calls, parsed.rejected) == ((), ())


@pytest.mark.parametrize("text", [f"<function_result>{RESULT}", f"So: {RESULT}"])
def test_a_result_that_is_cut_off_is_no_unfinished_call(text: str) -> None:
    for end in range(text.index("result", 20) + 10, len(text)):
        assert parse_text_calls(text[:end], FUNCTIONS).unfinished is None


@pytest.mark.parametrize("text", RESULTS)
def test_a_call_behind_a_result_is_found(text: str) -> None:
    for before in (text, f"{text}\n\n{text}", f"{text}\n\n<function_result>{RESULT}"):
        parsed = parse_text_calls(f"{before}\n{CALL}\n{text}", FUNCTIONS)
        assert [(call.name, call.arguments) for call in parsed.calls] == [("post", {"content": "a"})]
        assert parsed.rejected == ()
        accumulator = StreamAccumulator(FUNCTIONS)
        for character in f"{before}\n{CALL}":
            accumulator.feed_text(character)
        assert [call.name for call in accumulator.close()] == ["post"]


def test_a_parameter_that_is_named_like_a_result_is_an_argument() -> None:
    parsed = parse_text_calls('{"name": "post", "content": "a"}', FUNCTIONS)
    assert [(call.name, call.arguments) for call in parsed.calls] == [("post", {"content": "a"})]


@pytest.mark.parametrize("key", ["count", "content", "output"])
def test_a_call_without_arguments_is_malformed_where_it_gives_no_result(key: str) -> None:
    parsed = parse_text_calls(f'<function>{{"name": "ticket", "{key}": 1}}</function>', FUNCTIONS)
    assert [refused.name for refused in parsed.rejected] == ["ticket"]


_CALL_IN_LIST = '{"name": "post", "arguments": {"content": "a"}}'


@pytest.mark.parametrize(
    "frame", ["{}", "<tool_call>{}</tool_call>", "[TOOL_CALLS]{}", "<|python_tag|>{}", "```json\n{}\n```"]
)
@pytest.mark.parametrize("items", ["[{0}, {1}]", "[{0}, {0}, {1}]", "[{0},\n{1}", "[{1}, {0}]"])
def test_a_call_beside_a_result_in_a_list_is_found(frame: str, items: str) -> None:
    text = frame.format(items.format(RESULT, _CALL_IN_LIST))

    parsed = parse_text_calls(text, FUNCTIONS)
    accumulator = StreamAccumulator(FUNCTIONS)
    for character in text:
        accumulator.feed_text(character)

    assert [(call.name, call.arguments) for call in parsed.calls] == [("post", {"content": "a"})]
    assert (parsed.rejected, parsed.unfinished) == ((), None)
    assert [call.name for call in accumulator.close()] == ["post"]


def test_what_is_no_call_behind_a_result_in_a_list_is_refused() -> None:
    parsed = parse_text_calls(f'[{RESULT}, {{"name": "post", "arguments": "a"}}]', FUNCTIONS)

    assert [one.reason for one in parsed.rejected] == ["the arguments are no JSON object"]


def test_a_parameter_may_have_the_name_of_a_result() -> None:
    functions = [{"name": "post", "parameters": {"type": "object", "properties": {"result": {"type": "string"}}}}]

    assert [call.arguments for call in parse_text_calls('{"post": {"result": "a"}}', functions).calls] == [
        {"result": "a"}
    ]
