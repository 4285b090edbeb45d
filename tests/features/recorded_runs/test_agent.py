"""`input.trace`: cases that judge a run which was recorded elsewhere."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evalkit import SpecError, load_case, run_case
from evalkit.errors import UsageError
from evalkit.features.recorded_runs import choice
from evalkit.hosts.traces.log_formats import Conversation
from evalkit.hosts.traces.read_log import read_log
from evalkit.records.case import Permissions
from evalkit.records.settings import Settings
from evalkit.records.verdict import ERROR, FAILED, PASSED, Verdict
from evalkit.yamlfile.write import dump

ASKED = {"role": "user", "content": "Close order 7."}
CALL = {"id": "c1", "function": {"name": "close_order", "arguments": '{"order": 7}'}}
CALLED = {"role": "assistant", "content": "", "tool_calls": [CALL]}
ANSWERED = {"role": "tool", "tool_call_id": "c1", "content": '{"closed": true}'}
REPLIED = {"role": "assistant", "content": "It is closed."}
CHAT = [ASKED, CALLED, ANSWERED, REPLIED]
CLOSED = {"expected_function_calls": [{"function_name": "close_order", "arguments": {"order": 7}}]}


def judge(
    folder: Path, messages: object, expected: dict[str, Any], more: dict[str, Any] | None = None, **case: Any
) -> Verdict:
    """Judge a logged chat by a case that expects `expected`; `more` is added to its input."""
    scenarios = folder / "scenarios"
    scenarios.mkdir(exist_ok=True)
    (folder / "chat.json").write_text(json.dumps({"messages": messages}), "utf-8")
    case_input = {"message": "Close order 7.", "trace": "../chat.json", **(more or {})}
    case_input = {key: value for key, value in case_input.items() if value is not None}
    path = scenarios / "close_001.yaml"
    path.write_text(dump({"input": case_input, "expected_output": expected, **case}), "utf-8")
    return run_case(load_case(path, root=folder), settings=Settings(root=folder))


def get_reason(verdict: Verdict) -> tuple[str, str]:
    return verdict.reasons[0].code, verdict.reasons[0].message


def test_a_logged_chat_is_judged_like_a_run(tmp_path: Path) -> None:
    verdict = judge(tmp_path, CHAT, {**CLOSED, "response_contains": "closed", "max_model_turns": 2})
    assert verdict.status == PASSED
    assert verdict.transcript.cassette == "trace"
    assert verdict.transcript.features == {"recorded_runs": {"source": "chat.json", "is_named": True}}
    call = verdict.transcript.calls[0]
    assert (call.result, call.turn, call.channel, call.answered_by) == ({"closed": True}, 0, "native", "application")


def test_a_call_that_the_model_s_service_carried_out_is_on_record_as_such(tmp_path: Path) -> None:
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"query": "order 7"}}
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "It is closed."}]}
    (tmp_path / "log.json").write_text(json.dumps({"input": [ASKED, search, said]}), "utf-8")
    expected = {"expected_function_calls": ["web_search"], "response_contains": "closed"}
    verdict = judge(tmp_path, CHAT, expected, {"trace": "../log.json"})
    assert (verdict.status, verdict.transcript.calls[0].answered_by) == (PASSED, "service")
    verdict = judge(tmp_path, CHAT, {"expected_function_calls": [], "extra_calls": "forbid"}, {"trace": "../log.json"})
    assert verdict.status == FAILED


def test_a_wrong_argument_of_a_recorded_call_fails(tmp_path: Path) -> None:
    expected = {"expected_function_calls": [{"function_name": "close_order", "arguments": {"order": 8}}]}
    verdict = judge(tmp_path, CHAT, expected)
    assert (verdict.status, verdict.reasons[0].code) == (FAILED, "wrong_argument")


def test_no_agent_is_needed_and_no_mock_is_asked(tmp_path: Path) -> None:
    """Neither is a mock unused, whatever strict_mocks says."""
    more = {"mock_function_responses": {"close_order": {"closed": False}}}
    expected = {"expected_function_calls": [{"function_name": "close_order", "result_contains": {"closed": True}}]}
    verdict = judge(tmp_path, CHAT, expected, more, agent="nowhere:agent", settings={"strict_mocks": True})
    assert verdict.status == PASSED
    assert verdict.transcript.unused_mocks == ()


def test_arguments_that_break_the_declared_schema_fail(tmp_path: Path) -> None:
    parameters = {"type": "object", "properties": {"order": {"type": "string"}}}
    functions = {"close_order": {"description": "Closes.", "parameters": parameters}}
    verdict = judge(tmp_path, CHAT, {"response_contains": "closed"}, functions=functions)
    assert (verdict.status, verdict.reasons[0].code) == (FAILED, "invalid_arguments")


@pytest.mark.parametrize(
    ("expected", "more", "message"),
    [
        ({"state_contains": {"a": 1}}, {"state": {"a": 1}}, "chat.json holds no state, which the case expects"),
        ({"processing_time_ms": 9}, {}, "processing_time_ms: can't be judged: the run's time was not measured"),
        ({"max_tokens": 9}, {}, "max_tokens: can't be judged: the model's usage of tokens was not reported"),
        ({"scenario_instruction_used": "x"}, {}, "scenario_instruction_used: can't be judged: the agent did not"),
    ],
)
def test_what_no_trace_tells_is_an_error(
    expected: dict[str, Any], more: dict[str, Any], message: str, tmp_path: Path
) -> None:
    verdict = judge(tmp_path, CHAT, {**CLOSED, **expected}, more)
    assert verdict.status == ERROR
    assert get_reason(verdict)[1].startswith(message)


def test_an_argument_may_be_named_like_what_no_trace_tells(tmp_path: Path) -> None:
    """`state` and `approval` are keys of a case, and words for arguments."""
    absent = {"state": {"$absent": True}, "approval": {"$absent": True}}
    expected = {"expected_function_calls": [{"function_name": "close_order", "arguments_contain": absent}]}
    assert judge(tmp_path, CHAT, expected).status == PASSED


def test_a_state_that_a_probe_would_read_is_left_alone(tmp_path: Path) -> None:
    """It is that of now, and not that after the recorded run."""
    (tmp_path / "probe_of_traces.py").write_text("def read():\n    raise AssertionError('asked')\n", "utf-8")
    verdict = judge(tmp_path, CHAT, CLOSED, {"state_probe": {"$call": "probe_of_traces:read"}})
    assert verdict.status == PASSED


def test_a_latency_that_nobody_measured_is_no_pass(tmp_path: Path) -> None:
    expected = {"expected_function_calls": [{"function_name": "close_order", "max_latency_ms": 5}]}
    assert judge(tmp_path, CHAT, expected).status == ERROR


def test_a_chat_that_was_cut_off_is_an_error(tmp_path: Path) -> None:
    verdict = judge(tmp_path, CHAT[:2], CLOSED)
    assert get_reason(verdict) == (
        "incomplete_trace",
        "chat.json holds no answer to close_order: it was cut off, or its functions are not traced",
    )


def test_a_response_that_is_missing_is_no_empty_one(tmp_path: Path) -> None:
    """Of a reply nothing was recorded but that it came."""
    blank = {"role": "assistant", "parts": [{"type": "text"}]}
    assert judge(tmp_path, [*CHAT[:3], blank], CLOSED).status == PASSED
    verdict = judge(tmp_path, [*CHAT[:3], blank], {**CLOSED, "response_excludes": "sorry"})
    assert get_reason(verdict)[0] == "incomplete_trace"


def test_a_chat_that_ends_with_an_answer_was_cut_off(tmp_path: Path) -> None:
    """The call that matters may have come after it."""
    verdict = judge(tmp_path, CHAT[:3], CLOSED)
    assert get_reason(verdict) == (
        "incomplete_trace",
        "chat.json ends with the answer of close_order, and holds neither a reply to it nor the end of the run: it "
        "was cut off",
    )


def test_a_run_may_end_with_a_call(tmp_path: Path) -> None:
    """Its own span says that it has ended, or the call is that of a framework, for the output."""
    call = {"id": "c1", "function": {"name": "final_result", "arguments": "{}"}}
    messages = [ASKED, {**CALLED, "tool_calls": [call]}, ANSWERED]
    assert judge(tmp_path, messages, {"expected_function_calls": []}).status == PASSED
    held = {"gen_ai.input.messages": [ASKED], "gen_ai.output.messages": [CALLED]}
    called = {"gen_ai.tool.name": "close_order", "gen_ai.tool.call.id": "c1", "gen_ai.tool.call.result": "{}"}
    spans: list[dict[str, Any]] = [
        {"name": "run", "attributes": {}},
        {"name": "chat", "attributes": {"gen_ai.operation.name": "chat", **held}},
        {"name": "tool", "attributes": {"gen_ai.operation.name": "execute_tool", **called}},
    ]
    for number, span in enumerate(spans, 1):
        parent = {"parent_id": "run"} if number > 1 else {}
        span.update(trace_id="t", span_id=span["name"], start_time=number, end_time=9, **parent)
    for listed, status in ((spans, PASSED), (spans[1:], ERROR)):
        (tmp_path / "spans.json").write_text(json.dumps(listed), "utf-8")
        assert judge(tmp_path, [], CLOSED, {"trace": "../spans.json"}).status == status


WITHOUT_ARGUMENTS = (
    "incomplete_trace",
    "spans.json, trace t1 holds no arguments of close_order; record the content of messages and calls: "
    "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=true, or what the framework has for it",
)
DECLARED = {"close_order": {"parameters": {"type": "object", "required": ["order"]}}}


@pytest.mark.parametrize(
    ("expected", "case", "status"),
    [
        (CLOSED, {}, ERROR),
        ({"forbidden_function_calls": [{"function_name": "close_order", "arguments": {"order": 8}}]}, {}, ERROR),
        ({"expected_function_calls": ["close_order"], "max_identical_calls": 1}, {}, ERROR),
        ({"expected_function_calls": ["close_order"]}, {"functions": DECLARED}, ERROR),
        ({"expected_function_calls": ["close_order"]}, {}, PASSED),
        ({"expected_function_calls": [], "extra_calls": "forbid"}, {}, FAILED),
        ({"forbidden_function_calls": ["close_order"]}, {}, FAILED),
    ],
)
def test_demands_on_arguments_that_were_not_recorded_are_an_error(
    expected: dict[str, Any], case: dict[str, Any], status: str, tmp_path: Path
) -> None:
    """Names are judged; a call without its arguments is never judged as one with none."""
    call = {"role": "assistant", "parts": [{"type": "tool_call", "id": "c1", "name": "close_order"}]}
    answer = {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1"}]}
    done = {"role": "assistant", "parts": [{"type": "text", "content": "Done."}]}
    messages: list[tuple[list[Any], list[Any]]] = [([], [call]), ([call, answer], [done])]
    spans = [
        {
            "traceId": "t1",
            "spanId": str(number),
            "startTimeUnixNano": str(number),
            "endTimeUnixNano": str(number),
            "attributes": [
                {"key": key, "value": {"stringValue": value}}
                for key, value in (
                    ("gen_ai.operation.name", "chat"),
                    ("gen_ai.input.messages", json.dumps(asked)),
                    ("gen_ai.output.messages", json.dumps(replied)),
                )
            ],
        }
        for number, (asked, replied) in enumerate(messages, 1)
    ]
    (tmp_path / "spans.json").write_text(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}), "utf-8")
    verdict = judge(tmp_path, CHAT, expected, {"trace": "../spans.json"}, **case)
    assert verdict.status == status, verdict.summary
    if status == ERROR:
        assert get_reason(verdict) == WITHOUT_ARGUMENTS
    else:
        assert [part.what for part in verdict.transcript.unobserved] == ["close_order"]


@pytest.mark.parametrize("rest", [[], [{"role": "tool", "tool_call_id": "c1", "content": "not JSON"}, REPLIED]])
def test_arguments_that_the_model_cut_are_a_call_that_could_not_be_read(rest: list[Any], tmp_path: Path) -> None:
    cut = {"id": "c1", "function": {"name": "close_order", "arguments": '{"order": '}}
    verdict = judge(tmp_path, [ASKED, {"role": "assistant", "content": "", "tool_calls": [cut]}, *rest], CLOSED)
    assert (verdict.status, verdict.reasons[0].code) == (FAILED, "malformed_call")
    (call,) = verdict.transcript.calls
    assert (call.name, call.arguments, call.problem) == ("close_order", '{"order": ', "malformed_call")


def test_the_kind_of_a_failure_is_what_the_function_said(tmp_path: Path) -> None:
    """As in the spans of evalkit's own runs. That a function failed does not say that its agent did."""
    failure = {"error": {"type": "timeout", "message": "no answer"}}
    attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "close_order",
        "gen_ai.tool.call.arguments": '{"order": 7}',
        "gen_ai.tool.call.result": json.dumps(failure),
    }
    span = {"trace_id": "t1", "span_id": "s1", "attributes": attributes, "status": {"status_code": "ERROR"}}
    (tmp_path / "spans.json").write_text(json.dumps([span]), "utf-8")
    expected = {"function_name": "close_order", "outcome": "error", "result_contains": failure}
    more = {"trace": "../spans.json"}
    assert judge(tmp_path, CHAT, {"expected_function_calls": [expected]}, more).status == PASSED


def test_a_conversation_is_judged_turn_by_turn(tmp_path: Path) -> None:
    """Each turn of the user by its own expectation."""
    messages = [{"role": "user", "content": "Hello."}, {"role": "assistant", "content": "Hi!"}, *CHAT]
    turns = [{"user": "Hello.", "expected_output": {"expected_function_calls": []}}, "Close order 7."]
    more = {"message": None, "turns": turns}
    verdict = judge(tmp_path, messages, CLOSED, more)
    assert verdict.status == PASSED
    assert verdict.transcript.responses == ("Hi!", "It is closed.")
    verdict = judge(tmp_path, CHAT, CLOSED, more)
    assert get_reason(verdict) == ("incomplete_trace", "chat.json has 1 message of a user, and the case 2")


def test_a_trace_of_another_input_is_pointed_out(tmp_path: Path) -> None:
    verdict = judge(tmp_path, [{"role": "user", "content": "Close order 9."}, *CHAT[1:]], CLOSED)
    assert "chat.json: its user says something else than that of the case" in verdict.warnings


def test_one_trace_tells_of_one_run(tmp_path: Path) -> None:
    verdict = judge(tmp_path, CHAT, CLOSED, repeat=5)
    assert (verdict.status, verdict.runs_planned) == (PASSED, 1)
    assert "the case asks for 5 runs; the trace tells of one" in verdict.warnings


def test_what_the_agent_raised_fails_and_what_its_service_did_is_an_error(tmp_path: Path) -> None:
    def write(of_agent: int, of_model: int) -> None:
        spans = []
        for operation, code in (("invoke_agent", of_agent), ("chat", of_model)):
            messages = json.dumps([{"role": "assistant", "parts": [{"type": "text", "content": "Wait."}]}])
            values = {"gen_ai.operation.name": operation, "gen_ai.output.messages": messages}
            listed = [{"key": key, "value": {"stringValue": value}} for key, value in values.items()]
            status = {"code": code, "message": "429" if code else ""}
            spans.append({"traceId": "t1", "spanId": operation, "attributes": listed, "status": status})
        data = {"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}
        (tmp_path / "spans.json").write_text(json.dumps(data), "utf-8")

    expected: dict[str, Any] = {"expected_function_calls": []}
    write(2, 0)
    verdict = judge(tmp_path, CHAT, expected, {"trace": "../spans.json"})
    assert (verdict.status, verdict.reasons[0].code) == (FAILED, "agent_raised")
    write(2, 2)
    verdict = judge(tmp_path, CHAT, expected, {"trace": "../spans.json"})
    assert (verdict.status, verdict.reasons[0].code) == (ERROR, "provider_error")


def test_of_several_runs_in_a_file_that_of_the_case_is_judged(tmp_path: Path) -> None:
    """The one that names it, else the one with its input; never any."""
    other = {"messages": [{"role": "user", "content": "Hi."}, REPLIED]}
    named = {
        "messages": [{"role": "user", "content": "Please close it."}, *CHAT[1:]],
        "metadata": {"case_id": "close_001"},
    }
    trace = tmp_path / "chats.jsonl"

    def judge_lines(*records: object) -> Verdict:
        trace.write_text("".join(f"{json.dumps(record)}\n" for record in records), "utf-8")
        return judge(tmp_path, CHAT, CLOSED, {"trace": "../chats.jsonl"})

    assert judge_lines(other, {"messages": CHAT}).status == PASSED
    assert judge_lines(other, named).status == PASSED
    verdict = judge_lines(other, {"messages": [{"role": "user", "content": "Bye."}, REPLIED]})
    assert get_reason(verdict) == (
        "missing_trace",
        "scenarios/close_001.yaml:3:10: ../chats.jsonl: 2 runs are there, and none names this case or has its input; "
        "give it a file of one",
    )


def test_a_file_that_several_cases_name_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And again when it has changed."""
    reads: list[Path] = []

    def read(path: Path, harmless: tuple[str, ...]) -> Iterator[Conversation | UsageError]:
        reads.append(path)
        return read_log(path, harmless=harmless)

    monkeypatch.setattr(choice, "read_log", read)
    trace = tmp_path / "chats.jsonl"
    trace.write_text(json.dumps({"messages": CHAT}), "utf-8")
    more = {"trace": "../chats.jsonl"}
    assert [judge(tmp_path, CHAT, CLOSED, more).status for _ in range(3)] == [PASSED] * 3
    assert len(reads) == 1
    trace.write_text(json.dumps({"messages": [ASKED, REPLIED]}), "utf-8")
    assert judge(tmp_path, CHAT, CLOSED, more).status == FAILED
    assert len(reads) == 2


def test_a_file_without_a_run_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "none.json").write_text('{"a": 1}', "utf-8")
    verdict = judge(tmp_path, CHAT, CLOSED, {"trace": "../none.json"})
    code, message = get_reason(verdict)
    assert (verdict.status, code) == (ERROR, "missing_trace")
    assert message.startswith("scenarios/close_001.yaml:3:10: ../none.json holds no run of an agent: none.json: no ")


def test_a_trace_is_a_file_of_the_project(tmp_path: Path) -> None:
    """Neither a path nor a link leads out of it, and a mapping names none."""
    outside = tmp_path / "outside.json"
    outside.write_text(json.dumps({"messages": CHAT}), "utf-8")
    project = tmp_path / "project"
    project.mkdir()
    os.symlink(outside, project / "link.json")
    sha = {"path": "../outside.json", "sha256": "0"}
    for name, problem in (
        ("../link.json", "trace '../link.json' is refused: it leads out of the project"),
        ("../../outside.json", "trace '../../outside.json' is refused: it leads out of the project"),
        ("../chut.json", "there is no trace '../chut.json' in scenarios; did you mean 'chat.json'?"),
        (sha, "input.trace must be the path of a file, got a mapping"),
    ):
        with pytest.raises(SpecError) as caught:
            judge_loaded(project, name)
        assert re.search(rf"scenarios/close_001.yaml:\d:\d+: {re.escape(problem)}", str(caught.value))


def judge_loaded(folder: Path, trace: object) -> None:
    scenarios = folder / "scenarios"
    scenarios.mkdir(exist_ok=True)
    (folder / "chat.json").write_text(json.dumps({"messages": CHAT}), "utf-8")
    path = scenarios / "close_001.yaml"
    path.write_text(dump({"input": {"message": "Close.", "trace": trace}, "expected_output": CLOSED}), "utf-8")
    permissions = Permissions(folders=(str(folder),))
    load_case(path, root=folder, settings=Settings(root=folder, permissions=permissions))


def test_an_agent_that_goes_on_with_an_answer_was_handed_nothing(tmp_path: Path) -> None:
    """The expert runs within the desk's run: it is asked, and the desk goes on."""

    def span(number: int, operation: str, parent: str, **attributes: str) -> dict[str, Any]:
        named = {f"gen_ai.{key.replace('__', '.')}": value for key, value in attributes.items()}
        own = {"start_time": number, "attributes": {"gen_ai.operation.name": operation, **named}}
        return {"trace_id": "t1", "span_id": f"s{number}", "parent_id": parent, **own}

    def say(text: str) -> str:
        return json.dumps([{"role": "assistant", "parts": [{"type": "text", "content": text}]}])

    spans = [
        span(1, "invoke_agent", "", agent__name="desk"),
        span(2, "chat", "s1", output__messages=say("I ask.")),
        span(3, "invoke_agent", "s1", agent__name="expert"),
        span(4, "chat", "s3", output__messages=say("It is 7.")),
        span(5, "chat", "s1", output__messages=say("It is closed.")),
    ]
    (tmp_path / "spans.json").write_text(json.dumps(spans), "utf-8")
    expected = {"expected_handoffs": [], "expected_delegations": ["desk -> expert"]}
    assert judge(tmp_path, CHAT, expected, {"trace": "../spans.json"}).status == PASSED
