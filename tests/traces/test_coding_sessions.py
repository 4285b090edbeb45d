"""Sessions of Codex and of Gemini's command line: a file is one run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from evalkit.hosts.traces.log_formats import Conversation, FunctionAnswer, LoggedMessage, ModelReply
from evalkit.hosts.traces.read_log import read_log


def line(kind: str, **payload: Any) -> Any:
    return {"timestamp": "2026-02-23T12:40:23Z", "type": kind, "payload": payload}


def said(role: str, text: str) -> Any:
    kind = "output_text" if role == "assistant" else "input_text"
    return line("response_item", type="message", role=role, content=[{"type": kind, "text": text}])


SESSION = [
    line("session_meta", id="s1", instructions="Be brief."),
    line("event_msg", type="task_started"),
    said("user", "<environment_context>/tmp</environment_context>"),
    said("user", "List the files."),
    line("event_msg", type="user_message", message="List the files."),
    line("turn_context", model="m"),
    line("response_item", type="reasoning", summary=[]),
    line("response_item", type="function_call", name="shell", arguments='{"command": "ls"}', call_id="c1"),
    line("response_item", type="function_call_output", call_id="c1", output="a.txt"),
    line("response_item", type="custom_tool_call", name="apply_patch", input="*** a", call_id="c2"),
    line("response_item", type="custom_tool_call_output", call_id="c2", output="done"),
    line("response_item", type="ghost_snapshot", ghost_commit={}),
    said("assistant", "a.txt is there."),
    line("event_msg", type="task_complete", last_agent_message="a.txt is there."),
]


def read(folder: Path, *records: Any) -> Any:
    path = folder / "rollout.jsonl"
    path.write_text("\n".join(map(json.dumps, records)), "utf-8")
    (found,) = read_log(path)
    return found


def test_a_session_is_a_conversation(tmp_path: Path) -> None:
    found = read(tmp_path, *SESSION)

    assert isinstance(found, Conversation)
    asked, shell, listed, patch, patched, replied = found.events
    assert asked == LoggedMessage("List the files.")
    calls = [call for event in (shell, patch) if isinstance(event, ModelReply) for call in event.calls]
    assert [(call.name, call.arguments, call.call_id) for call in calls] == [
        ("shell", {"command": "ls"}, "c1"),
        ("apply_patch", {"input": "*** a"}, "c2"),
    ]
    answers = [event for event in (listed, patched) if isinstance(event, FunctionAnswer)]
    assert [(answer.value, answer.call_id) for answer in answers] == [("a.txt", "c1"), ("done", "c2")]
    assert isinstance(replied, ModelReply)
    assert (found.system, found.output, found.has_ended) == ("Be brief.", "a.txt is there.", True)


def test_a_session_that_broke_off_has_no_end(tmp_path: Path) -> None:
    found = read(tmp_path, *SESSION[:-1])
    assert (found.output, found.has_ended) == (None, False)


def test_without_events_of_the_user_all_that_stands_in_his_name_counts(tmp_path: Path) -> None:
    found = read(tmp_path, *(record for record in SESSION if record["type"] != "event_msg"))
    assert [event.text.partition(">")[0] for event in found.events if isinstance(event, LoggedMessage)] == [
        "<environment_context"
    ]


@pytest.mark.parametrize("item", [{"type": "foo_call", "name": "drop"}, {"type": "function_call", "arguments": "{}"}])
def test_an_item_that_nobody_reads_is_a_problem(item: Any, tmp_path: Path) -> None:
    assert f"openai_responses.item.{item['type']}" in str(read(tmp_path, *SESSION, line("response_item", **item)))


def test_records_without_a_conversation_are_told_three_times_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join(json.dumps({"level": "info", "n": n}) for n in range(10)), "utf-8")
    *listed, last = map(str, read_log(path))
    assert [problem.partition(": ")[0] for problem in listed] == ["log.jsonl:1", "log.jsonl:2", "log.jsonl:3"]
    assert last.startswith("log.jsonl: 7 more records like them: no conversation in 'level', 'n'")


def build_cli_session(*more: Any) -> Any:
    def call(call_id: str, status: str, response: Any) -> Any:
        result = [{"functionResponse": {"id": call_id, "name": "read_file", "response": response}}]
        return {"id": call_id, "name": "read_file", "args": {"path": call_id}, "result": result, "status": status}

    calls = [call("c1", "success", {"output": "x"}), call("c2", "error", {"error": "no such file"})]
    tokens = {"input": 10, "output": 5, "total": 15}
    messages = [
        {"type": "user", "content": "Read them."},
        {"type": "gemini", "content": "I look.", "toolCalls": calls, "model": "gemini-x", "tokens": tokens},
        {"type": "info", "content": "Session saved."},
        {"type": "gemini", "content": "x is there."},
    ]
    return {"sessionId": "s1", "projectHash": "h", "messages": [*messages, *more]}


def test_a_session_of_geminis_command_line_is_a_conversation(tmp_path: Path) -> None:
    found = read(tmp_path, build_cli_session())

    assert isinstance(found, Conversation)
    asked, reads, first, second, replied = found.events
    assert asked == LoggedMessage("Read them.")
    assert isinstance(reads, ModelReply)
    assert (reads.text, reads.model) == ("I look.", "gemini-x")
    assert [(call.name, call.arguments, call.call_id) for call in reads.calls] == [
        ("read_file", {"path": "c1"}, "c1"),
        ("read_file", {"path": "c2"}, "c2"),
    ]
    assert [(a.call_id, a.failed) for a in (first, second) if isinstance(a, FunctionAnswer)] == [
        ("c1", False),
        ("c2", True),
    ]
    assert isinstance(replied, ModelReply)
    assert replied.text == "x is there."


def test_a_message_of_another_type_is_a_problem(tmp_path: Path) -> None:
    told = str(read(tmp_path, build_cli_session({"type": "agent", "content": "", "toolCalls": []})))
    assert told == "rollout.jsonl:1: a message has the type 'agent'; expected user or gemini"
