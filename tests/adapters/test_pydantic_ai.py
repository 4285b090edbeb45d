"""Agents of pydantic-ai, run by pydantic-ai itself, with its own test models: no network, no key."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest
from pydantic import BaseModel

import evalkit
from evalkit.errors import FunctionError

REASON = "the extra is not installed: pip install 'pytest-evalkit[pydantic-ai]'"
pytest.importorskip("pydantic_ai", reason=REASON)

from pydantic_ai import Agent, DeferredToolRequests, ModelRetry, RunContext, UsageLimits
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import ApprovalRequired, UnexpectedModelBehavior
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.toolsets import AbstractToolset, ApprovalRequiredToolset, FunctionToolset

from evalkit.adapters.pydantic_ai import answered_by, open_model, run_agent
from evalkit.providers.table import parse_model_spec

VALID = {"status": "valid"}


class RealCodeRanError(Exception):
    """A tool's own function ran."""


def never(*_: Any, **__: Any) -> Any:
    raise RealCodeRanError


def scripted(*replies: Any) -> FunctionModel:
    """A model that answers request by request: a text, or a list of (name, arguments) calls. The last one repeats."""

    def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        asked = sum(message.kind == "response" for message in messages)
        reply = replies[min(asked, len(replies) - 1)]
        if isinstance(reply, str):
            return ModelResponse(parts=[TextPart(reply)])
        return ModelResponse(
            parts=[ToolCallPart(name, arguments, f"c{asked}.{i}") for i, (name, arguments) in enumerate(reply)]
        )

    return FunctionModel(respond)


def desk(model: Any, **more: Any) -> Agent[Any, Any]:
    """An agent with a sync tool, an async tool with a context, and a default."""
    agent = Agent(model, instructions="Answer customers.", **more)

    @agent.tool_plain
    def check_warranty(serial_number: str, region: str = "eu") -> dict[str, Any]:
        """Looks a serial number up."""
        return never()  # type: ignore[no-any-return]

    @agent.tool
    async def send_reply(ctx: RunContext[Any], to: str, body: str) -> None:
        """Sends a mail."""
        never()

    return agent


def case(mocks: dict[str, Any], expected: Any = None, **more: Any) -> evalkit.Case:
    given = more.pop("input", {"message": "Is SN1 under warranty?"})
    expects = {"extra_calls": "allow", "call_order": "any", **(expected or {"max_model_turns": 50})}
    return evalkit.case_from_dict(
        {"input": {**given, "mock_function_responses": mocks}, "expected_output": expects, **more}
    )


def run(agent: Agent[Any, Any], mocks: dict[str, Any], expected: Any = None, **more: Any) -> evalkit.Verdict:
    options: dict[str, Any] = more.pop("options", {})

    async def under_test(task: evalkit.Task) -> evalkit.Reply:
        return await run_agent(task, agent, **options)

    settings = more.pop("run_settings", None)
    return evalkit.run_case(case(mocks, expected, **more), under_test, settings)


MOCKS = {"check_warranty": VALID, "send_reply": None}


def test_the_tools_are_answered_by_the_mocks_and_recorded_with_their_turns() -> None:
    model = scripted(
        [("check_warranty", {"serial_number": "SN1"})],
        [("send_reply", {"to": "ana@example.com", "body": "valid"})],
        "done",
    )
    verdict = run(
        desk(model),
        MOCKS,
        {
            "expected_function_calls": [
                {"function_name": "check_warranty", "arguments": {"serial_number": "SN1"}, "channel": "native"},
                {"function_name": "send_reply", "body_contains": "valid"},
            ],
            "call_order": "strict",
            "extra_calls": "forbid",
            "max_model_turns": 3,
            "response_contains": "done",
        },
    )
    assert verdict.passed, verdict.reasons
    transcript = verdict.transcript
    assert [(call.name, call.turn, call.call_id) for call in transcript.calls] == [
        ("check_warranty", 0, "c0.0"),
        ("send_reply", 1, "c1.0"),
    ]
    assert [(turn.text, turn.finish_reason) for turn in transcript.turns] == [
        ("", "tool_calls"),
        ("", "tool_calls"),
        ("done", "stop"),
    ]
    assert transcript.usage is not None
    assert transcript.usage.total_tokens > 0
    assert transcript.stop_reason == "completed"


def test_calls_of_one_reply_are_parallel_and_take_their_answers_in_reply_order() -> None:
    serials = ["SN3", "SN1", "SN2"]
    model = scripted([("check_warranty", {"serial_number": serial}) for serial in serials], "done")
    mocks = {"check_warranty": {"$sequence": [{"n": 1}, {"n": 2}, {"n": 3}]}}
    expected = {"expected_function_calls": [{"in_parallel": [{"function_name": "check_warranty", "times": 3}]}]}
    verdict = run(desk(model), mocks, expected)
    assert verdict.passed, verdict.reasons
    assert [(call.arguments["serial_number"], call.result, call.turn) for call in verdict.transcript.calls] == [
        ("SN3", {"n": 1}, 0),
        ("SN1", {"n": 2}, 0),
        ("SN2", {"n": 3}, 0),
    ]


def test_calls_of_two_replies_are_not_parallel() -> None:
    call = ("check_warranty", {"serial_number": "SN1"})
    expected = {"expected_function_calls": [{"in_parallel": [{"function_name": "check_warranty", "times": 2}]}]}
    verdict = run(desk(scripted([call], [call], "done")), MOCKS, expected)
    assert verdict.status == "failed"


@pytest.mark.parametrize(
    ("calls", "code"),
    [
        ([("check_warranty", {"serial_number": "SN2"})], "wrong_argument"),
        ([], "missing_call"),
        ([("check_warranty", {"serial_number": "SN1"}), ("send_reply", {"to": "a", "body": "b"})], "unexpected_call"),
        ([("check_waranty", {"serial_number": "SN1"})], "unknown_function"),
        ([("check_warranty", {"serial_number": ["SN1"]})], "invalid_arguments"),
        ([("check_warranty", {"serial": "SN1"})], "invalid_arguments"),
        ([("check_warranty", '{"serial_number": "SN')], "malformed_call"),
    ],
)
def test_a_wrong_call_fails_with_its_code(calls: list[Any], code: str) -> None:
    expected = {
        "expected_function_calls": [{"function_name": "check_warranty", "arguments": {"serial_number": "SN1"}}],
        "extra_calls": "forbid",
    }
    model = scripted(calls, "done") if calls else scripted("done")
    verdict = run(desk(model), MOCKS, expected)
    assert verdict.status == "failed"
    assert code in [reason.code for reason in verdict.reasons]
    assert not any("RealCodeRan" in reason.message for reason in verdict.reasons)


def test_the_framework_refuses_wrong_arguments_and_the_model_gets_its_retry() -> None:
    model = scripted(
        [("check_warranty", {"serial_number": 5})], [("check_warranty", {"serial_number": "SN1"})], "mended"
    )
    expected = {
        "expected_function_calls": [
            {"function_name": "check_warranty", "valid": False, "outcome": "error"},
            {"function_name": "check_warranty", "arguments": {"serial_number": "SN1"}},
        ],
        "response_contains": "mended",
    }
    verdict = run(desk(model), {"check_warranty": {"$sequence": [VALID]}}, expected)
    assert verdict.passed, verdict.reasons
    refused = verdict.transcript.calls[0]
    assert refused.result == {
        "error": {"type": "invalid_arguments", "message": "serial_number: Input should be a valid string"}
    }
    assert (refused.turn, refused.arguments, refused.problem) == (0, {"serial_number": 5}, None)


def test_a_tool_that_nothing_mocks_is_an_unmocked_call_and_its_code_never_runs() -> None:
    model = scripted([("send_reply", {"to": "a", "body": "b"})], "done")
    verdict = run(desk(model), {"check_warranty": VALID})
    assert [reason.code for reason in verdict.reasons] == ["unmocked_call", "agent_raised"]
    assert "send_reply is not mocked in this case; mocked are check_warranty" in verdict.reasons[0].message


def test_a_mocked_failure_is_raised_in_the_tool_as_the_real_one_would() -> None:
    model = scripted([("check_warranty", {"serial_number": "SN1"})], "done")
    timeout = {"check_warranty": {"$error": {"type": "timeout", "message": "too slow"}}}
    verdict = run(desk(model), timeout)
    assert [reason.code for reason in verdict.reasons] == ["agent_raised"]
    assert "FunctionError: too slow" in verdict.reasons[0].message
    assert verdict.transcript.calls[0].result == {"error": {"type": "timeout", "message": "too slow"}}


def test_an_agent_that_handles_failing_tools_handles_mocked_ones() -> None:
    from pydantic_ai.capabilities import Hooks

    hooks: Any = Hooks()

    @hooks.on.tool_execute_error
    async def recover(ctx: Any, *, call: Any, tool_def: Any, args: Any, error: Exception) -> str:
        assert isinstance(error, FunctionError)
        return f"unknown ({error.type})"

    seen: list[Any] = []

    def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        seen.append(messages[-1].parts[0])
        if len(messages) == 1:
            return ModelResponse(parts=[ToolCallPart("check_warranty", {"serial_number": "SN1"}, "c1")])
        return ModelResponse(parts=[TextPart("done")])

    mocks = {"check_warranty": {"$error": {"type": "timeout", "message": "too slow"}}}
    verdict = run(desk(FunctionModel(respond), capabilities=[hooks]), mocks)
    assert verdict.passed, verdict.reasons
    assert seen[-1].content == "unknown (timeout)"


def test_a_mock_may_ask_for_a_retry() -> None:
    model = scripted(*[[("check_warranty", {"serial_number": f"SN{i}"})] for i in range(2)], "done")
    retry = {"$error": {"exception": "pydantic_ai:ModelRetry", "message": "no such machine"}}
    expected = {
        "expected_function_calls": [{"function_name": "check_warranty", "outcome": "error"}, "check_warranty"],
        "response_contains": "done",
    }
    verdict = run(desk(model), {"check_warranty": {"$sequence": [retry, VALID]}}, expected)
    assert verdict.passed, verdict.reasons


def test_a_mock_that_breaks_is_an_error_not_a_failure() -> None:
    model = scripted([("check_warranty", {"serial_number": "SN1"})], "done")
    verdict = run(desk(model), {"check_warranty": {"$call": "math:sqrt"}})
    assert (verdict.status, verdict.reasons[0].code) == ("error", "mock_error")


def test_the_real_tool_runs_only_where_the_run_allows_it() -> None:
    agent: Agent[Any, Any] = Agent(scripted([("double", {"n": 4})], "done"))

    @agent.tool_plain
    async def double(n: int) -> int:
        return 2 * n

    mocks = {"double": {"$real": True}}
    allowed = run(agent, mocks, run_settings=evalkit.Settings(allow_real=True))
    assert allowed.passed, allowed.reasons
    assert allowed.transcript.calls[0].result == 8
    refused = run(agent, mocks)
    assert (refused.status, refused.reasons[0].code) == ("error", "mock_error")


class Answer(BaseModel):
    serial_number: str
    valid: bool


def test_structured_output_is_the_replys_json_and_no_function_call() -> None:
    result = {"serial_number": "SN1", "valid": True}
    model = scripted([("check_warranty", {"serial_number": "SN1"})], [("final_result", result)])
    expected = {
        "expected_function_calls": ["check_warranty"],
        "extra_calls": "forbid",
        "response_json": {"type": "object"},
    }
    verdict = run(desk(model, output_type=Answer), MOCKS, expected)
    assert verdict.passed, verdict.reasons
    assert json.loads(verdict.transcript.response) == result
    assert verdict.transcript.metadata == {"output": result}
    last = verdict.transcript.turns[-1]
    assert (last.calls, json.loads(last.text), last.finish_reason) == ((), result, "stop")


def test_arguments_are_recorded_as_the_model_wrote_them() -> None:
    agent: Agent[Any, Any] = Agent(
        scripted([("book", '{"day": "2026-01-01", "answer": {"serial_number": "a", "valid": "yes"}}')], "done")
    )

    @agent.tool_plain
    def book(day: str, answer: Answer, seats: int = 2) -> None:
        never()

    verdict = run(agent, {"book": 1}, {"valid_arguments": False, "expected_function_calls": ["book"]})
    assert verdict.transcript.calls[0].arguments == {
        "day": "2026-01-01",
        "answer": {"serial_number": "a", "valid": "yes"},
    }


def test_the_agents_declarations_join_those_of_the_case() -> None:
    seen: list[Any] = []

    async def under_test(task: evalkit.Task) -> evalkit.Reply:
        reply = await run_agent(task, desk(scripted("done")))
        seen.extend(task.functions.to_json())
        return reply

    own = {"check_warranty": {"description": "the case's own", "parameters": {"type": "object"}}}
    evalkit.run_case(case(MOCKS, functions=own), under_test)
    assert [(function["name"], function["description"]) for function in seen] == [
        ("check_warranty", "the case's own"),
        ("send_reply", "Sends a mail."),
    ]
    assert seen[1]["parameters"]["required"] == ["to", "body"]


def test_fifty_cases_share_one_agent_and_see_none_of_each_others_mocks() -> None:
    def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        serial = str(messages[0].parts[-1].content)
        if len(messages) == 1:
            calls = [ToolCallPart("check_warranty", {"serial_number": serial}, f"same{i}") for i in range(3)]
            return ModelResponse(parts=calls)
        said = {json.dumps(part.content) for part in messages[-1].parts}
        return ModelResponse(parts=[TextPart(f"{serial} {' '.join(sorted(said))}")])

    shared = desk(FunctionModel(respond))
    before = dict(vars(shared))

    async def under_test(task: evalkit.Task) -> evalkit.Reply:
        await asyncio.sleep(0)
        return await run_agent(task, shared)

    async def all_at_once() -> Sequence[evalkit.Verdict]:
        cases = [
            case(
                {"check_warranty": {"$delay_ms": 1, "$return": {"of": number}}},
                {
                    "response_contains": f'SN{number} {{"of": {number}}}',
                    "expected_function_calls": [
                        {
                            "in_parallel": [
                                {
                                    "function_name": "check_warranty",
                                    "times": 3,
                                    "arguments": {"serial_number": f"SN{number}"},
                                }
                            ]
                        }
                    ],
                },
                input={"message": f"SN{number}"},
            )
            for number in range(50)
        ]
        settings = evalkit.Settings(real_sleep=True)
        return await asyncio.gather(*(evalkit.arun_case(one, under_test, settings) for one in cases))

    verdicts = asyncio.run(all_at_once())
    assert [verdict.reasons for verdict in verdicts if not verdict.passed] == []
    assert dict(vars(shared)) == before


def test_an_agent_in_a_tool_is_answered_too_and_its_turns_are_recorded() -> None:
    expert = desk(scripted([("check_warranty", {"serial_number": "SN1"})], "it is valid"))
    support: Agent[Any, Any] = Agent(scripted([("ask_expert", {"question": "SN1?"})], "done"))

    @support.tool
    async def ask_expert(ctx: RunContext[Any], question: str) -> str:
        result = await expert.run(question, usage=ctx.usage)
        return str(result.output)

    expected = {
        "expected_function_calls": [
            {"function_name": "ask_expert", "result_contains": "it is valid"},
            {"function_name": "check_warranty", "arguments": {"serial_number": "SN1"}, "by": "expert"},
        ],
        "call_order": "strict",
        "extra_calls": "forbid",
        "expected_delegations": ["support -> expert"],
    }
    support.name = "support"
    verdict = run(support, {"check_warranty": VALID}, expected, options={"as_is": ["ask_expert"]})
    assert verdict.passed, verdict.reasons
    transcript = verdict.transcript
    assert [(call.name, call.turn) for call in transcript.calls] == [("ask_expert", 0), ("check_warranty", 1)]
    assert [turn.text for turn in transcript.turns] == ["", "", "it is valid", "done"]

    mocked = run(
        support,
        {"ask_expert": "no idea"},
        {"expected_function_calls": ["ask_expert"]},
        options={"as_is": ["ask_expert"]},
    )
    assert mocked.passed, mocked.reasons
    assert len(mocked.transcript.turns) == 2
    unmocked = run(support, {"check_warranty": VALID})
    assert unmocked.reasons[0].code == "unmocked_call"


def test_agents_that_other_code_runs_are_answered_within_answered_by() -> None:
    agent = desk(scripted([("check_warranty", {"serial_number": "SN1"})], "done"))

    async def under_test(task: evalkit.Task) -> str:
        with answered_by(task):
            result = await agent.run(task.message)
        with pytest.raises(RealCodeRanError):  # outside of it the agent is its own again
            await agent.run(task.message)
        return str(result.output)

    verdict = evalkit.run_case(
        case(MOCKS, {"expected_function_calls": ["check_warranty"], "extra_calls": "forbid"}), under_test
    )
    assert verdict.passed, verdict.reasons


def test_a_run_in_a_thread_without_its_context_is_still_its_cases() -> None:
    agent = desk(scripted([("check_warranty", {"serial_number": "SN1"})], "done"))

    async def under_test(task: evalkit.Task) -> str:
        with answered_by(task):
            loop = asyncio.get_running_loop()
            result = await loop.run_in_executor(None, lambda: asyncio.run(agent.run(task.message)))
        return str(result.output)

    async def both() -> Sequence[evalkit.Verdict]:
        cases = [case({"check_warranty": {"of": number}}) for number in range(2)]
        return await asyncio.gather(*(evalkit.arun_case(one, under_test) for one in cases))

    verdicts = asyncio.run(both())
    assert [verdict.reasons for verdict in verdicts] == [(), ()]
    assert [[call.result for call in verdict.transcript.calls] for verdict in verdicts] == [[{"of": 0}], [{"of": 1}]]


def test_a_streamed_run_gives_the_same_transcript() -> None:
    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        if len(messages) == 1:
            yield {0: DeltaToolCall("check_warranty", '{"serial_', tool_call_id="c0.0")}
            yield {0: DeltaToolCall(json_args='number": "SN1"}')}
        else:
            yield "do"
            yield "ne"

    agent = desk(FunctionModel(stream_function=stream))

    async def under_test(task: evalkit.Task) -> str:
        with answered_by(task):
            async with agent.run_stream(task.message) as result:
                return str(await result.get_output())

    verdict = evalkit.run_case(case(MOCKS), under_test)
    assert verdict.passed, verdict.reasons
    assert [(call.name, call.arguments, call.turn) for call in verdict.transcript.calls] == [
        ("check_warranty", {"serial_number": "SN1"}, 0)
    ]
    assert [turn.text for turn in verdict.transcript.turns] == ["", "done"]


def test_a_conversation_goes_on_with_the_agents_own_history() -> None:
    def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        said = [part.content for message in messages for part in message.parts if part.part_kind == "user-prompt"]
        return ModelResponse(parts=[TextPart(" / ".join(map(str, said)))])

    talk = {"turns": [{"user": "hello"}, {"user": "and again"}]}
    verdict = run(desk(FunctionModel(respond)), MOCKS, {"response_contains": "hello / and again"}, input=talk)
    assert verdict.passed, verdict.reasons
    assert verdict.transcript.responses == ("hello", "hello / and again")


def endless() -> Agent[Any, Any]:
    return desk(scripted([("check_warranty", {"serial_number": "SN1"})]))


@pytest.mark.parametrize(
    ("options", "more", "stop_reason", "turns"),
    [
        ({}, {}, "max_iterations", 10),
        ({}, {"settings": {"max_iterations": 2}}, "max_iterations", 2),
        ({"usage_limits": UsageLimits(request_limit=3)}, {}, "max_iterations", 3),
        ({"usage_limits": UsageLimits(total_tokens_limit=60)}, {}, "usage_limit", 2),
    ],
)
def test_limits_are_stop_reasons(options: Any, more: Any, stop_reason: str, turns: int) -> None:
    verdict = run(endless(), MOCKS, {"stop_reason": stop_reason}, options=options, **more)
    assert verdict.passed, verdict.reasons
    assert len(verdict.transcript.turns) == turns


def test_a_model_that_never_mends_its_arguments_fails_the_case_as_it_ends_the_run() -> None:
    verdict = run(desk(scripted([("check_warranty", {"serial_number": 5})])), MOCKS)
    assert "agent_raised" in [reason.code for reason in verdict.reasons]
    assert any(UnexpectedModelBehavior.__name__ in reason.message for reason in verdict.reasons)
    assert [call.outcome for call in verdict.transcript.calls] == ["error", "error"]


def test_a_call_that_waits_for_approval_ends_the_run_and_is_not_made() -> None:
    agent: Agent[Any, Any] = Agent(scripted([("refund", {"amount": 5})]), output_type=[str, DeferredToolRequests])

    @agent.tool_plain(requires_approval=True)
    def refund(amount: int) -> None:
        never()

    asked_for = [{"function_name": "refund", "answered_by": "nobody"}]
    expected = {"stop_reason": "interrupted", "expected_function_calls": asked_for, "extra_calls": "forbid"}
    verdict = run(agent, {"refund": 1}, expected)
    assert verdict.passed, verdict.reasons
    assert "refund" in verdict.transcript.response


@pytest.mark.parametrize(
    ("answer", "arguments", "approval"),
    [
        ("approve", {"amount": 5}, "approved"),
        ({"arguments": {"amount": 2}}, {"amount": 2}, "changed"),
        ({"deny": "too much"}, {"amount": 5}, "denied"),
    ],
)
def test_the_case_answers_for_the_person_whom_pydantic_ai_asks(answer: Any, arguments: Any, approval: str) -> None:
    model = scripted([("refund", {"amount": 5})], "done")
    agent: Agent[Any, Any] = Agent(model, output_type=[str, DeferredToolRequests])

    @agent.tool_plain(requires_approval=True)
    def refund(amount: int) -> None:
        never()

    expected = {
        "expected_function_calls": [{"function_name": "refund", "arguments": arguments, "approval": approval}],
        "expected_approvals": [{"function_name": "refund", "arguments": {"amount": 5}}],
        "response_contains": "done",
        "extra_calls": "forbid",
    }
    question = {"message": "Pay me back", "approvals": {"refund": answer}}
    verdict = run(agent, {"refund": {"ok": True}}, expected, input=question)
    assert verdict.passed, verdict.reasons
    (call,) = verdict.transcript.calls
    denied = {"error": {"type": "denied", "message": "too much"}}
    assert call.result == (denied if approval == "denied" else {"ok": True})
    missing = run(agent, {"refund": 1}, input={"message": "Pay me back"})
    assert (missing.status, [reason.code for reason in missing.reasons]) == ("error", ["missing_approval"])


def around(toolset: AbstractToolset[Any]) -> AbstractToolset[Any]:
    return toolset


def dynamic(toolset: AbstractToolset[Any]) -> Callable[..., AbstractToolset[Any]]:
    return lambda ctx: toolset


@pytest.mark.parametrize(
    ("wrap", "name"),
    [
        (around, "check"),
        (dynamic, "check"),
        (lambda toolset: toolset.prefixed("shop"), "shop_check"),
        (lambda toolset: toolset.renamed({"look": "check"}), "look"),
        (lambda toolset: toolset.filtered(lambda ctx, tool: True).prefixed("a"), "a_check"),
    ],
)
def test_toolsets_are_answered_however_they_are_wrapped(wrap: Any, name: str) -> None:
    toolset: FunctionToolset[Any] = FunctionToolset()

    @toolset.tool_plain
    def check(serial_number: str) -> None:
        never()

    agent: Agent[Any, Any] = Agent(scripted([(name, {"serial_number": "SN1"})], "done"), toolsets=[wrap(toolset)])
    verdict = run(agent, {name: VALID}, {"expected_function_calls": [name], "extra_calls": "forbid"})
    assert verdict.passed, verdict.reasons


def test_tools_that_a_capability_brings_and_those_of_this_run_alone_are_answered() -> None:
    one: FunctionToolset[Any] = FunctionToolset()
    other: FunctionToolset[Any] = FunctionToolset()
    one.add_function(lambda: never(), name="one", takes_ctx=False)
    other.add_function(lambda: never(), name="other", takes_ctx=False)

    class Bringing(AbstractCapability[Any]):
        def get_toolset(self) -> Any:
            return one

    agent: Agent[Any, Any] = Agent(TestModel(), capabilities=[Bringing()])
    expected = {"expected_function_calls": ["one", "other"], "extra_calls": "forbid"}
    verdict = run(agent, {"one": 1, "other": 2}, expected, options={"toolsets": [other]})
    assert verdict.passed, verdict.reasons


def test_a_toolset_that_is_made_anew_in_each_step_is_answered() -> None:
    agent: Agent[Any, Any] = Agent(scripted([("check", {})], [("check", {})], "done"))
    made: list[Any] = []

    @agent.toolset
    def each_step(ctx: RunContext[Any]) -> AbstractToolset[Any]:
        made.append(FunctionToolset())
        made[-1].add_function(lambda: never(), name="check", takes_ctx=False)
        return made[-1]

    verdict = run(agent, {"check": VALID}, {"max_model_turns": 3})
    assert verdict.passed, verdict.reasons
    assert len(verdict.transcript.calls) == 2
    assert len(made) > 1


def test_an_approval_that_a_toolset_asks_for_is_still_asked_for() -> None:
    toolset: FunctionToolset[Any] = FunctionToolset()

    @toolset.tool_plain
    def refund(amount: int) -> None:
        never()

    careful: Any = ApprovalRequiredToolset(toolset, lambda ctx, tool, args: args["amount"] > 100)
    model = scripted([("refund", {"amount": 50})], [("refund", {"amount": 500})])
    agent: Agent[Any, Any] = Agent(model, toolsets=[careful], output_type=[str, DeferredToolRequests])
    verdict = run(agent, {"refund": "ok"}, {"stop_reason": "interrupted"})
    assert verdict.passed, verdict.reasons
    calls = [(call.arguments, call.answered_by) for call in verdict.transcript.calls]
    assert calls == [({"amount": 50}, "mock"), ({"amount": 500}, "nobody")]


def test_validators_of_tools_still_run() -> None:
    def known(ctx: Any, serial_number: str) -> None:
        if serial_number == "SN0":
            raise ModelRetry("no such machine")

    agent: Agent[Any, Any] = Agent(scripted(*[[("check", {"serial_number": f"SN{i}"})] for i in range(2)], "done"))

    @agent.tool_plain(args_validator=known)
    def check(serial_number: str) -> None:
        never()

    verdict = run(agent, {"check": VALID}, {"max_model_turns": 3})
    assert verdict.passed, verdict.reasons
    assert [call.outcome for call in verdict.transcript.calls] == ["error", "ok"]


def test_the_test_model_of_pydantic_ai_calls_every_tool() -> None:
    expected = {"expected_function_calls": [{"in_parallel": ["check_warranty", "send_reply"]}], "extra_calls": "forbid"}
    verdict = run(desk(TestModel()), MOCKS, expected)
    assert verdict.passed, verdict.reasons


def test_a_sync_agent_waits_for_the_run() -> None:
    agent = desk(scripted([("check_warranty", {"serial_number": "SN1"})], "done"))

    def under_test(task: evalkit.Task) -> evalkit.Reply:
        return task.wait(run_agent(task, agent, message="hello"))

    verdict = evalkit.run_case(case(MOCKS, {"expected_function_calls": ["check_warranty"]}), under_test)
    assert verdict.passed, verdict.reasons


def test_the_model_that_a_run_asks_for_is_that_of_every_agent_which_is_given_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("evalkit.adapters.pydantic_ai.open_model", lambda spec: scripted(f"from {spec.model}"))
    agent = desk(scripted("from its own"))

    async def under_test(task: evalkit.Task) -> str:
        first = await run_agent(task, agent)
        given = await run_agent(task, agent, model=scripted("from the call"))
        with answered_by(task):
            inside = await agent.run("hello")
        return f"{first.text}, {given.text}, {inside.output}"

    verdict = evalkit.run_case(case(MOCKS, settings={"model": "openai:gpt-x"}), under_test)
    assert verdict.transcript.response == "from gpt-x, from the call, from gpt-x"


@pytest.mark.parametrize(
    ("spec", "kind", "base_url"),
    [
        ("openai:gpt-x?base_url=http://localhost:1/v1", "OpenAIChatModel", "http://localhost:1/v1/"),
        ("gemini:gemini-x?base_url=http://localhost:2", "GoogleModel", "http://localhost:2"),
    ],
)
def test_the_model_that_a_run_asks_for_is_opened_as_pydantic_ais(
    spec: str, kind: str, base_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key in ("OPENAI_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.setenv(key, "offline")
    model = open_model(parse_model_spec(spec))
    assert type(model).__name__ == kind
    assert model.base_url.rstrip("/") == base_url.rstrip("/")


@pytest.mark.parametrize(("answer", "amount"), [("approve", 5), ({"arguments": {"amount": 2}}, 2)])
def test_a_tool_that_asks_for_approval_itself_is_one_call(answer: Any, amount: int) -> None:
    agent: Agent[Any, Any] = Agent(
        scripted([("refund", {"amount": 5})], "done"), output_type=[str, DeferredToolRequests]
    )

    @agent.tool
    def refund(ctx: RunContext[Any], amount: int) -> str:
        if not ctx.tool_call_approved:
            raise ApprovalRequired
        return f"{amount} paid"

    question = {"message": "Pay", "approvals": {"refund": answer}}
    verdict = run(agent, {}, {"response_contains": "done"}, input=question, options={"as_is": ["refund"]})
    assert verdict.passed, verdict.reasons
    assert [(call.arguments, call.result) for call in verdict.transcript.calls] == [
        ({"amount": amount}, f"{amount} paid")
    ]
