"""A call that an agent's own loop carries out is recorded with the turn and the channel that it came from."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest

import evalkit
from evalkit.records.transcript import CallAnswer, FunctionCall, ModelCall, ModelRequest, ModelTurn

TOOLS = '''\
def tool_search(query: str, limit: int = 5):
    """Never called: every case mocks it."""
    raise AssertionError("the real function was called")
'''
SEARCH = {
    "patch": "desk_tools:tool_search",
    "alias": ["tool_search"],
    "parameters": {
        "type": "object",
        "properties": {"query": {"type": "string"}, "limit": {"type": "integer"}},
        "required": ["query"],
    },
}
Agent = Callable[[evalkit.Task, Any], Any]


@pytest.fixture
def tools() -> Iterator[Any]:
    """The agent's own module."""
    module = ModuleType("desk_tools")
    exec(compile(TOOLS, "desk_tools.py", "exec"), module.__dict__)
    sys.modules["desk_tools"] = module
    yield module
    del sys.modules["desk_tools"]


def calls_of(agent: Agent, tools: Any, *turns: Any) -> list[FunctionCall]:
    """The calls on record after `agent(task, ask)` ran over scripted turns; `ask` takes the next one."""

    async def run(task: evalkit.Task) -> str:
        async def ask() -> Any:
            return await task.turn(ModelRequest(messages=tuple(task.messages)))

        await agent(task, ask)
        return "done"

    case = evalkit.case_from_dict(
        {
            "functions": {"search": SEARCH},
            "input": {"message": "hello", "mock_function_responses": {"search": ["found"]}},
            "expected_output": {"response_contains": "done"},
        }
    )
    script = evalkit.ScriptedProvider(turns)
    verdict = evalkit.run_case(case, run, evalkit.Settings(extra={"provider": lambda case_id, run: script}))
    assert verdict.passed, verdict.reasons
    return list(verdict.transcript.calls)


def origin(call: FunctionCall) -> tuple[str, int | None, str | None]:
    return call.channel, call.turn, call.requested_name


NATIVE = {"calls": [{"name": "search", "arguments": {"query": "hotel"}, "id": "c1"}]}
TEXT = 'I need it.\n<TOOL>search: "hotel"</TOOL>'


def test_a_patched_function_is_attributed_to_the_native_call_it_carries_out(tools: Any) -> None:
    async def agent(task: evalkit.Task, ask: Any) -> None:
        for call in (await ask()).calls:
            tools.tool_search(**call.arguments)
        tools.tool_search("something else")

    carried_out, own = calls_of(agent, tools, NATIVE)
    assert origin(carried_out) == ("native", 0, None)
    assert carried_out.call_id == "c1"
    assert origin(own) == ("direct", None, None)


def test_a_default_that_a_framework_fills_in_is_no_argument_of_the_call(tools: Any) -> None:
    async def agent(task: evalkit.Task, ask: Any) -> None:
        await ask()
        tools.tool_search(query="hotel", limit=7)  # not what the model asked for
        tools.tool_search(query="hotel", limit=5)

    own, carried_out = calls_of(agent, tools, NATIVE)
    assert (origin(own), own.arguments) == (("direct", None, None), {"query": "hotel", "limit": 7})
    assert (origin(carried_out), carried_out.arguments) == (("native", 0, None), {"query": "hotel"})


def test_a_call_that_the_agents_own_parser_read_is_a_text_call(tools: Any) -> None:
    """The detour shows although nobody told evalkit of it."""

    async def agent(task: evalkit.Task, ask: Any) -> None:
        await ask()
        tools.tool_search(query="hotel")

    assert [origin(call) for call in calls_of(agent, tools, TEXT)] == [("text", 0, None)]


def test_what_an_older_turn_asked_for_in_vain_does_not_hide_the_detour(tools: Any) -> None:
    """Native, in vain; native again; then as text, and only that is carried out."""

    async def agent(task: evalkit.Task, ask: Any) -> None:
        for _ in range(3):
            await ask()
        tools.tool_search(query="hotel")

    assert [origin(call) for call in calls_of(agent, tools, NATIVE, NATIVE, TEXT)] == [("text", 2, None)]


def test_the_same_call_twice_in_one_turn_is_taken_in_order(tools: Any) -> None:
    async def agent(task: evalkit.Task, ask: Any) -> None:
        await ask()
        for _ in range(3):
            await task.acall("search", query="hotel")

    twice = {"calls": [{"name": "search", "arguments": {"query": "hotel"}, "id": name} for name in ("c1", "c2")]}
    calls = calls_of(agent, tools, twice)
    assert [(call.call_id, call.channel) for call in calls] == [("c1", "native"), ("c2", "native"), (None, "direct")]


def test_an_alias_is_the_function_it_stands_for(tools: Any) -> None:
    """The model asks under one name, the code calls under the other, and both stand on record."""

    async def agent(task: evalkit.Task, ask: Any) -> None:
        await ask()
        await task.acall("tool_search", query="hotel")
        await ask()
        task.call("search", query="hotel")

    other = {"calls": [{"tool_search": {"query": "hotel"}}]}
    calls = calls_of(agent, tools, NATIVE, other)
    assert [origin(call) for call in calls] == [("native", 0, "tool_search"), ("native", 1, None)]
    assert {call.name for call in calls} == {"search"}


def test_arguments_without_a_truth_value_are_no_models(tools: Any) -> None:
    """Patched code passes what it likes."""

    class Array:
        def __eq__(self, other: object) -> Any:
            raise ValueError("the truth value of an array is ambiguous")

        __hash__ = None  # type: ignore[assignment]

    async def agent(task: evalkit.Task, ask: Any) -> None:
        await ask()
        tools.tool_search(query=Array())

    (call,) = calls_of(agent, tools, NATIVE)
    assert call.channel == "direct"


BOTH = {
    "calls": [
        {"name": "delete_account", "arguments": {"id": 7}, "id": "c1"},
        {"name": "search", "arguments": {"query": "hotel"}, "id": "c2"},
    ]
}


def answering(answer: Any, *, turns: tuple[Any, ...] = (BOTH, "done")) -> list[FunctionCall]:
    """The calls on record of an agent that executes `search` alone, and sends back `answer(call)` for other calls."""

    async def run(task: evalkit.Task) -> str:
        while True:
            turn = await task.turn(ModelRequest(messages=tuple(task.messages)))
            task.messages.append({"role": "model", "turn": turn})
            if not turn.calls:
                return turn.text
            searches = [(call, task.call(call.name, **call.arguments)) for call in turn.calls if call.name == "search"]
            others = [(call, answer(call)) for call in turn.calls if call.name != "search"]
            task.messages.append({"role": "function", "results": [*searches, *others]})

    case = evalkit.case_from_dict(
        {
            "input": {"message": "hello", "mock_function_responses": {"search": ["found"]}},
            "expected_output": {"extra_calls": "allow", "expected_function_calls": ["search"]},
        }
    )
    script = evalkit.ScriptedProvider(turns)
    verdict = evalkit.run_case(case, run, evalkit.Settings(extra={"provider": lambda case_id, run: script}))
    assert verdict.passed, verdict.reasons
    return list(verdict.transcript.calls)


def row(call: FunctionCall) -> tuple[Any, ...]:
    return call.index, call.name, call.turn, call.call_id, call.channel, call.outcome, call.answered_by, call.result


def test_a_call_that_a_guard_answers_stands_on_record_in_the_order_of_the_reply() -> None:
    calls = answering(lambda call: {"blocked": True})
    assert [row(call) for call in calls] == [
        (0, "delete_account", 0, "c1", "native", "ok", "application", {"blocked": True}),
        (1, "search", 0, "c2", "native", "ok", "mock", ["found"]),
    ]


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ({"error": {"type": "denied", "message": "no"}}, {"type": "denied", "message": "no"}),
        ({"error": "not allowed"}, {"type": "error", "message": "not allowed"}),
    ],
)
def test_an_error_that_a_guard_answers_is_a_failed_call(answer: Any, error: Any) -> None:
    call, _ = answering(lambda call: answer)
    assert (call.outcome, call.answered_by, call.result) == ("error", "application", {"error": error})


def test_calls_of_one_name_get_the_answers_that_belong_to_them() -> None:
    """Without ids, as Gemini's are: the first was executed, so its answer is not the second's."""
    calls = [{"search": {"query": "hotel"}}, {"route": {"to": "billing"}}, {"route": {"to": "sales"}}]
    recorded = answering(lambda call: call.arguments["to"], turns=({"calls": calls}, "done"))
    assert [(call.name, call.answered_by, call.result) for call in recorded] == [
        ("search", "mock", ["found"]),
        ("route", "application", "billing"),
        ("route", "application", "sales"),
    ]


def test_a_call_that_nobody_answers_is_one_all_the_same(tools: Any) -> None:
    """The agent stops at the model's wish: a forbidden call is not excused by that."""

    async def agent(task: evalkit.Task, ask: Any) -> None:
        await ask()
        task.call("search", query="hotel")

    blocked, _ = calls_of(agent, tools, BOTH)
    message = "the model asked for delete_account, and nobody answered"
    assert row(blocked) == (
        *(0, "delete_account", 0, "c1", "native", "error", "nobody"),
        {"error": {"type": "unanswered", "message": message}},
    )


def test_a_call_that_code_makes_with_other_arguments_is_no_second_one(tools: Any) -> None:
    async def agent(task: evalkit.Task, ask: Any) -> None:
        await ask()
        tools.tool_search(query="hotel", limit=3)

    assert [origin(call) for call in calls_of(agent, tools, NATIVE)] == [("direct", None, None)]


def test_arguments_that_code_has_repaired_stay_a_malformed_call_of_the_model() -> None:
    """LlamaIndex reads what it can of broken JSON, and calls its tool with that."""
    broken = ModelCall(name="search", arguments='{"query": "ho', call_id="c1", malformed="it breaks off")

    def agent(task: evalkit.Task) -> str:
        task.record_turn(ModelTurn(calls=(broken,)))
        task.call("search", query="ho")
        task.record_turn(ModelTurn(text="done"), answers=[CallAnswer("found", "c1")])
        return "done"

    case = evalkit.case_from_dict(
        {
            "input": {"message": "hello", "mock_function_responses": {"search": "found"}},
            "expected_output": {"expected_function_calls": [{"function_name": "search", "outcome": "any"}]},
        }
    )
    verdict = evalkit.run_case(case, agent)
    assert "malformed_call" in [reason.code for reason in verdict.reasons]
    assert [(call.channel, call.problem) for call in verdict.transcript.calls] == [
        ("direct", None),
        ("native", "malformed_call"),
    ]


def test_an_agent_may_record_itself_what_it_answers(tools: Any) -> None:
    async def agent(task: evalkit.Task, ask: Any) -> None:
        turn = await ask()
        task.record_call(turn.calls[0], {"handed": "over"}, turn=0)
        task.call("search", query="hotel")

    handed, searched = calls_of(agent, tools, BOTH)
    assert (handed.name, handed.answered_by, handed.result) == ("delete_account", "application", {"handed": "over"})
    assert searched.answered_by == "mock"


def test_the_calls_of_a_reply_stand_in_its_order_however_the_agent_makes_them(tools: Any) -> None:
    """As by threads, the last one first; a call of the agent's own stays where it was made."""
    listed = [{"name": "search", "arguments": {"query": text}, "id": text} for text in ("a", "b", "c")]

    async def agent(task: evalkit.Task, ask: Any) -> None:
        for _ in range(2):
            for call in reversed((await ask()).calls):
                tools.tool_search(**call.arguments)
            tools.tool_search("own")

    calls = calls_of(agent, tools, {"calls": listed}, {"calls": listed[:2]})
    assert [call.arguments["query"] for call in calls] == ["a", "b", "c", "own", "a", "b", "own"]
    assert [call.index for call in calls] == list(range(7))
