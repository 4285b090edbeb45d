"""The function-calling loop: what is asked, what is dispatched, what goes back, and how it ends."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evalkit.agents.contract import Reply
from evalkit.agents.instruction import Instruction
from evalkit.agents.task import Task
from evalkit.errors import ProviderError
from evalkit.hosts.reports.trace import TraceOptions, render_trace
from evalkit.models.providers.turns import ScriptedProvider
from evalkit.records.case import Case, CaseSettings, Declaration
from evalkit.records.settings import Settings
from evalkit.records.transcript import ModelCall, ModelRequest, ModelTurn
from evalkit.records.verdict import Verdict
from evalkit.runner.run_case import run_case
from evalkit.stats.accounting import Channels, account

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}}
CHECK = Declaration(name="check", description="Look up", parameters=SCHEMA)
SEND = Declaration(name="send_email", parameters={"type": "object", "properties": {"to": {"type": "string"}}})
INSTRUCTION = Instruction(name="desk", body="Be brief.", available_functions=(CHECK, SEND))
MOCKS = {"check": {"$sequence": [{"n": 1}, {"n": 2}, {"n": 3}], "$then": "repeat_last"}, "send_email": {"id": "m"}}


class Ran:
    """One case, run over a script."""

    def __init__(
        self,
        turns: Any,
        *,
        mocks: Any = MOCKS,
        instruction: Instruction = INSTRUCTION,
        settings: CaseSettings | None = None,
        **options: Any,
    ) -> None:
        self.script: Any = turns if hasattr(turns, "turn") else ScriptedProvider(turns)
        self.reply: Reply | None = None

        async def agent(task: Task) -> Reply:
            self.reply = await task.run_instruction(instruction, **options)
            return self.reply

        case = Case(
            id="s/loop_1.yaml",
            input={"message": "SN1?", "mock_function_responses": mocks},
            expected_output={"response_excludes": "never said"},
            settings=settings or CaseSettings(),
        )
        self.verdict: Verdict = run_case(
            case, agent, Settings(root=Path("."), extra={"provider": lambda case_id, run: self.script})
        )

    @property
    def requests(self) -> list[ModelRequest]:
        requests: list[ModelRequest] = self.script.requests
        return requests

    @property
    def stop_reason(self) -> str:
        return self.verdict.transcript.stop_reason

    @property
    def calls(self) -> list[tuple[str, Any]]:
        return [(call.name, call.arguments) for call in self.verdict.transcript.calls]


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"calls": [{name: arguments}]}


def test_a_reply_without_calls_ends_the_loop() -> None:
    ran = Ran([call("check", n=1), "Done."])

    assert ran.verdict.status == "passed"
    assert ran.reply == Reply("Done.", instruction_used="desk")
    assert ran.verdict.transcript.instruction_used == "desk"
    assert ran.calls == [("check", {"n": 1})]


def test_what_is_asked_is_the_instruction_its_functions_and_the_conversation() -> None:
    ran = Ran([call("check", n=1), "Done."])

    first, second = ran.requests
    assert (first.system, first.functions, first.temperature, first.seed) == ("Be brief.", (CHECK, SEND), None, None)
    assert first.messages == ({"role": "user", "text": "SN1?"},)
    reply = ran.verdict.transcript.turns[0]
    assert second.messages == (
        *first.messages,
        {"role": "model", "turn": reply},
        {"role": "function", "results": [(reply.calls[0], {"n": 1})]},
    )


def test_the_message_can_be_replaced() -> None:
    assert Ran(["Hi."], message="From: a").requests[0].messages == ({"role": "user", "text": "From: a"},)


def test_parallel_calls_share_a_turn_and_answer_in_order() -> None:
    ran = Ran([{"calls": [{"check": {"n": 1}}, {"send_email": {"to": "a"}}, {"check": {"n": 2}}]}, "Done."])

    made = ran.verdict.transcript.calls
    assert [(c.name, c.turn, c.channel, c.index) for c in made] == [
        ("check", 0, "native", 0),
        ("send_email", 0, "native", 1),
        ("check", 0, "native", 2),
    ]
    assert [value for _, value in ran.requests[1].messages[-1]["results"]] == [{"n": 1}, {"id": "m"}, {"n": 2}]


def test_parallel_calls_take_as_long_as_the_slowest() -> None:
    mocks = {"check": {"$delay_ms": 200, "$return": 1}, "send_email": {"$delay_ms": 300, "$return": 1}}
    ran = Ran([{"calls": ["check", "send_email"], "duration_ms": 800}, "Done."], mocks=mocks)

    timing = ran.verdict.transcript.timing
    assert timing is not None
    assert (timing.model_ms, timing.function_ms) == (800, 300)


def test_a_failing_function_goes_back_to_the_model_as_an_error() -> None:
    ran = Ran([call("check"), "Sorry."], mocks={"check": {"$error": {"type": "timeout", "message": "too slow"}}})

    _, value = ran.requests[1].messages[-1]["results"][0]
    assert value == {"error": {"type": "timeout", "message": "too slow"}}
    assert ran.stop_reason == "completed"


@pytest.mark.parametrize(
    ("turn", "problem"),
    [
        (call("chek"), "unknown_function"),
        (call("ping"), "unknown_function"),
        ({"calls": [{"check": '{"n": '}]}, "malformed_call"),
    ],
)
def test_a_call_that_cannot_be_made_is_answered_recorded_and_fails_the_case(turn: Any, problem: str) -> None:
    ran = Ran([turn, "Done."], mocks={**MOCKS, "ping": 1})

    _, value = ran.requests[1].messages[-1]["results"][0]
    assert set(value) == {"error"}
    assert ran.verdict.transcript.calls[0].problem == problem
    assert (ran.verdict.status, ran.verdict.reasons[0].code) == ("failed", problem)


@pytest.mark.parametrize(
    ("finish", "stop_reason"),
    [
        ("stop", "completed"),
        ("content_filter", "blocked"),
        ("malformed_call", "malformed_call"),
        ("length", "length"),
        ("truncated", "truncated"),
        ("empty", "empty"),
        ("other", "other"),
    ],
)
def test_how_a_reply_ended_is_how_the_run_ended(finish: str, stop_reason: str) -> None:
    ran = Ran([ModelTurn(text="so far", finish_reason=finish)])

    assert ran.stop_reason == stop_reason
    assert ran.verdict.transcript.response == "so far"
    assert (ran.verdict.status == "passed") is (stop_reason == "completed")


@pytest.mark.parametrize(("limit", "made"), [(None, 10), (3, 3)])
def test_iterations_are_limited(limit: int | None, made: int) -> None:
    ran = Ran([call("check")] * 12, settings=CaseSettings(max_iterations=limit))

    assert ran.stop_reason == "max_iterations"
    assert (len(ran.requests), len(ran.calls)) == (made, made)


def test_the_deadline_is_kept_on_the_runs_clock() -> None:
    slow = {**call("check"), "duration_ms": 25_000}
    ran = Ran([slow] * 9)

    assert (ran.stop_reason, len(ran.requests)) == ("deadline", 3)
    assert ran.verdict.reasons[0].code == "deadline"


@pytest.mark.parametrize(
    ("turns", "stop_reason"),
    [
        ([call("check"), call("send_email"), "Done."], "completed"),
        ([call("check"), "Done."], "email_not_sent"),
        ([call("send_email"), call("check"), "Done."], "email_not_sent"),
        (["Done."], "email_not_sent"),
        ([ModelTurn(finish_reason="content_filter")], "blocked"),
    ],
)
def test_a_required_last_call_that_is_missing_is_the_stop_reason(turns: list[Any], stop_reason: str) -> None:
    assert Ran(turns, require_last="send_email", missing_code="email_not_sent").stop_reason == stop_reason


def test_a_required_last_call_that_failed_is_missing() -> None:
    mocks = {"send_email": {"$error": {"type": "smtp", "message": "down"}}}

    assert Ran([call("send_email"), "Done."], mocks=mocks, require_last="send_email").stop_reason == (
        "required_call_missing"
    )


class FailingService:
    name = "failing"

    def __init__(self) -> None:
        self.requests: list[ModelRequest] = []

    async def turn(self, request: ModelRequest) -> ModelTurn:
        raise ProviderError("429 quota", status=429)

    async def aclose(self) -> None: ...


def test_a_failing_service_is_a_stop_reason_for_the_agent_and_an_error_for_the_case() -> None:
    ran = Ran(FailingService())

    assert ran.reply is not None
    assert ran.reply.stop_reason == "provider_error"
    assert (ran.verdict.status, ran.verdict.reasons[0].code) == ("error", "provider_error")
    assert ran.verdict.reasons[0].message == "429 quota"


def test_what_a_provider_notes_of_its_requests_is_a_warning_once() -> None:
    asked = ModelTurn(calls=(ModelCall(name="check", arguments={"n": 1}),), note="asked otherwise")
    ran = Ran([asked, ModelTurn(text="Hi.", note="asked otherwise")])

    assert ran.verdict.transcript.warnings == ("asked otherwise",)


def test_what_the_case_says_of_requests_is_asked() -> None:
    said: dict[str, Any] = {
        "temperature": 0.5,
        "seed": 7,
        "max_output_tokens": 9,
        "reasoning_effort": "low",
        "verbosity": "high",
    }
    ran = Ran(["Hi."], settings=CaseSettings(**said))

    assert {name: getattr(ran.requests[0], name) for name in said} == said


# -- calls as text

TEXT_CALL = 'Let me look. <function>{"name": "check", "parameters": {"n": 4}}</function>'
BAD_TEXT_CALL = '<FUNCTION>{"name": "check", "parameters": {"n": 4}</FUNCTION>'


def test_calls_in_the_text_are_made_and_answered_as_text() -> None:
    ran = Ran([TEXT_CALL, "Done."])

    made = ran.verdict.transcript.calls[0]
    assert (made.name, made.arguments, made.channel, made.turn) == ("check", {"n": 4}, "text", 0)
    assert ran.requests[1].messages[-1] == {
        "role": "user",
        "text": 'check returned {"n": 1}',
    }
    assert ran.stop_reason == "completed"


def test_the_history_has_text_calls_in_the_standard_form() -> None:
    ran = Ran([BAD_TEXT_CALL, "Done."])

    assert ran.verdict.transcript.calls[0].repairs
    assert ran.requests[1].messages[1]["turn"].text == (
        '<function>{"name": "check", "parameters": {"n": 4}}</function>'
    )
    assert ran.verdict.transcript.turns[0].text == BAD_TEXT_CALL


def test_a_correction_note_goes_back_where_the_case_asks_for_it() -> None:
    ran = Ran([BAD_TEXT_CALL, "Done."], settings=CaseSettings(correct_text_calls=True))

    note = ran.requests[1].messages[-1]["text"]
    assert note.startswith('check returned {"n": 1}\n\nWrite each')
    assert 'Write each function call exactly as <function>{"name": "...", "parameters": {...}}</function>.' in note
    assert "\n- check: " in note


def test_results_have_the_tags_that_the_instruction_speaks_of_and_no_others() -> None:
    told = Instruction(name="desk", body="Results come in <function_result>.", available_functions=(CHECK, SEND))
    ran = Ran([BAD_TEXT_CALL, "Done."], instruction=told)

    assert ran.requests[-1].messages[-1]["text"] == (
        '<function_result>{"name": "check", "result": {"n": 1}}</function_result>'
    )


@pytest.mark.parametrize(
    ("replies", "requests"),
    [
        (["<tool_call>check(1</tool_call>", "<tool_call>check(2</tool_call>", "<tool_call>check(3</tool_call>"], 3),
        (["<tool_call>check(1</tool_call>", "<tool_call>check(1</tool_call>"], 2),
        (["<tool_call>check(1</tool_call>", BAD_TEXT_CALL, "<tool_call>check(1</tool_call>"], 3),
    ],
)
def test_a_model_that_does_no_better_is_not_told_for_ever(replies: list[str], requests: int) -> None:
    ran = Ran([*replies, "Never asked."], settings=CaseSettings(correct_text_calls=True))

    assert (ran.stop_reason, len(ran.requests)) == ("malformed_call", requests)


@pytest.mark.parametrize("correct", [False, True])
def test_a_result_that_the_model_repeats_ends_the_run_as_an_answer(correct: bool) -> None:
    echo = '<function_result>{"name": "check", "result": {"n": 1}}\nIt is 1.'
    ran = Ran([BAD_TEXT_CALL, echo, "Never asked."], settings=CaseSettings(correct_text_calls=correct))

    assert (ran.stop_reason, len(ran.calls), len(ran.requests)) == ("completed", 1, 2)
    assert ran.verdict.status == "passed"


def test_a_text_call_that_is_cut_off_ends_the_run_unless_it_is_corrected() -> None:
    cut = '<function>{"name": "check", "parameters": {"n": '
    assert (Ran([cut]).stop_reason, Ran([cut]).calls) == ("malformed_call", [])

    corrected = Ran([cut, "Done."], settings=CaseSettings(correct_text_calls=True))

    assert corrected.stop_reason == "completed"
    assert "was not made: it is not finished" in corrected.requests[1].messages[-1]["text"]


# -- agents with a loop of their own


def run_own(agent: Callable[[Task], Any], turns: list[Any]) -> Verdict:
    case = Case(
        id="s/own_1.yaml",
        input={"message": "SN1?", "mock_function_responses": MOCKS},
        expected_output={"response_excludes": "never said"},
        functions=(CHECK,),
    )
    return run_case(case, agent, Settings(extra={"provider": lambda case_id, run: ScriptedProvider(turns)}))


def test_a_call_that_carries_out_the_models_call_belongs_to_its_turn() -> None:
    async def agent(task: Task) -> str:
        turn = await task.turn(ModelRequest())
        for wanted in turn.calls:
            task.call(wanted.name, **wanted.arguments)
        task.call("check", n=9)
        return ""

    verdict = run_own(agent, [{"calls": [{"name": "check", "arguments": {"n": 1}, "id": "c1"}]}])

    assert [(c.turn, c.channel, c.call_id) for c in verdict.transcript.calls] == [
        (0, "native", "c1"),
        (None, "direct", None),
    ]


def test_arguments_may_be_called_name_or_self() -> None:
    def agent(task: Task) -> str:
        task.call("check", name="x", self="y")
        task.functions["check"](name="z")
        return ""

    verdict = run_own(agent, [])

    assert [c.arguments for c in verdict.transcript.calls] == [{"name": "x", "self": "y"}, {"name": "z"}]


def test_functions_are_offered_in_the_forms_of_the_model_apis() -> None:
    seen: dict[str, Any] = {}

    def agent(task: Task) -> str:
        seen.update(names=list(task.functions), openai=task.functions.openai_tools(), n=len(task.functions))
        seen.update(gemini=task.functions.gemini_tools(), declared=task.functions.declarations)
        with pytest.raises(KeyError, match=r"no function 'chek'; did you mean 'check'\? \(this case has check, send"):
            task.functions["chek"]
        return ""

    run_own(agent, [])

    declaration = {"name": "check", "description": "Look up"}
    assert set(seen["names"]) == {"check", "send_email"}
    assert seen["openai"] == [{"type": "function", "function": {**declaration, "parameters": SCHEMA}}]
    assert seen["gemini"] == [{"function_declarations": [{**declaration, "parameters_json_schema": SCHEMA}]}]
    assert seen["declared"] == (CHECK,)


def test_the_log_carries_the_case(caplog: pytest.LogCaptureFixture) -> None:
    def agent(task: Task) -> str:
        task.log.info("thinking")
        return ""

    with caplog.at_level(logging.INFO, logger="evalkit.agent"):
        run_own(agent, [])

    assert [getattr(record, "case_id", "") for record in caplog.records if record.msg == "thinking"] == ["s/own_1.yaml"]


# -- what is said beside the verdict

MAIL_AS_TEXT = '<function>{"name": "send_email", "parameters": {"to": "ana"}}</function>'


@pytest.mark.parametrize(
    ("turn", "warning"),
    [
        (
            {"calls": [{"check": {"n": 1}}], "text": f"And mail. {MAIL_AS_TEXT}"},
            "model turn 1 called natively and wrote others as text, which were not made: send_email",
        ),
        (
            {"calls": [{"send_email": {"to": "ana"}}], "text": MAIL_AS_TEXT},
            "model turn 1 called natively and wrote the same as text, which was left",
        ),
        (
            {"calls": [{"check": {"n": 1}}], "finish_reason": "length"},
            "model turn 1 ended with 'length', and its whole calls were carried out",
        ),
        (
            {"calls": [{"check": {"n": 1}}], "finish_reason": "malformed_call", "finish_message": "send_email({"},
            "model turn 1 ended with 'malformed_call', and its whole calls were carried out: send_email({",
        ),
        ({"calls": [{"check": {"n": 1}}], "text": "Use the <function> tag."}, None),
        (
            {"text": f'{MAIL_AS_TEXT} <function>{{"name": "pay"}}</function>'},
            'model turn 1: <function>{"name": "pay"}</function> was not made: \'pay\' is not declared',
        ),
        (
            {"text": f'{MAIL_AS_TEXT} <function>{{"name": "check", "par'},
            'model turn 1: <function>{"name": "check", "par was not made: it is not finished',
        ),
    ],
)
def test_what_a_reply_lost_beside_its_calls_is_a_warning_in_the_trace(turn: Any, warning: str | None) -> None:
    ran = Ran([turn, "Done."])

    assert len(ran.calls) == 1
    assert ran.verdict.transcript.warnings == ((warning,) if warning else ())
    assert [line for line in render_trace(ran.verdict).splitlines() if "warning" in line] == (
        [f"  warning: {warning}"] if warning else []
    )


def test_a_reply_that_was_blocked_says_why_in_the_reason_and_the_conversation() -> None:
    blocked = {"text": "", "finish_reason": "content_filter", "finish_message": "the prompt was blocked: SAFETY"}
    verdict = Ran([blocked]).verdict

    assert [reason.message for reason in verdict.reasons] == [
        "the run ended with 'blocked', expected 'completed': the prompt was blocked: SAFETY"
    ]
    told = render_trace(verdict, TraceOptions(conversation=True)).splitlines()
    assert told[told.index("  model, turn 1 (content_filter)") + 1] == "  │ the prompt was blocked: SAFETY"


@pytest.mark.parametrize("correct", [False, True])
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('<function>{"name": "check", "par', '<function>{"name": "check", "par was not made: it is not finished'),
        ('{"name": "check", "arguments": [1]}',
         '{"name": "check", "arguments": [1]} was not made: the arguments are no JSON object'),
    ],
)  # fmt: skip
def test_a_text_that_sets_out_to_call_and_cannot_be_read_is_a_malformed_call(
    text: str, said: str, correct: bool
) -> None:
    """In the record, in the counts, and in the reason; also where the model is told, and does better."""
    verdict = Ran([text, "Done."], settings=CaseSettings(correct_text_calls=correct)).verdict

    first = verdict.transcript.turns[0]
    assert (first.text, first.finish_reason, first.finish_message) == (text, "malformed_call", said)
    assert account([verdict]).functions == {"(unreadable)": Channels(malformed=1)}
    assert [reason.message for reason in verdict.reasons] == (
        [] if correct else [f"the run ended with 'malformed_call', expected 'completed': {said}"]
    )


@pytest.mark.parametrize("correct", [False, True])
def test_a_malformed_call_beside_a_readable_one_is_a_call_that_fails_the_case(correct: bool) -> None:
    """Unless the model is told of it, and may write it again."""
    text = f"{MAIL_AS_TEXT} <tool_call>check(</tool_call>"
    ran = Ran([text, "Done."], settings=CaseSettings(correct_text_calls=correct))

    problems = [(call.name, call.channel, call.problem) for call in ran.verdict.transcript.calls]
    sent = ("send_email", "text", None)
    assert problems == ([sent] if correct else [sent, ("check", "text", "malformed_call")])
    assert [reason.code for reason in ran.verdict.reasons] == ([] if correct else ["malformed_call"])
    assert ran.verdict.transcript.warnings == (
        "model turn 1: <tool_call>check(</tool_call> was not made: the call of 'check' could not be read",
    )


@pytest.mark.parametrize("text", ["<tool_call>check(</tool_call>", "Action: check\nAction Input: x"])
def test_an_unreadable_call_alone_fails_a_case_that_expects_none(text: str) -> None:
    verdict = Ran([text]).verdict

    assert (verdict.status, verdict.transcript.stop_reason) == ("failed", "malformed_call")


def test_an_unreadable_call_beside_a_native_one_is_a_warning() -> None:
    ran = Ran([{"calls": [{"check": {"n": 1}}], "text": "<tool_call>send_email(</tool_call>"}, "Done."])

    assert ran.verdict.transcript.warnings == (
        "model turn 1: <tool_call>send_email(</tool_call> was not made: the call of 'send_email' could not be read",
    )


def test_a_long_attempt_is_cut_in_the_reason() -> None:
    text = '<function>{"name": "send_email", "parameters": {"to": "' + "x" * 5_000
    verdict = Ran([text]).verdict

    assert len(verdict.reasons[0].message) < 400
    assert verdict.reasons[0].message.endswith("was not made: it is not finished")
