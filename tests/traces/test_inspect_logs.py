"""Logs of Inspect: each sample is a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from evalkit.hosts.traces.log_formats import Conversation, FunctionAnswer, LoggedMessage, ModelReply
from evalkit.hosts.traces.read_log import read_log

MESSAGES: list[Any] = [
    {"role": "system", "content": "Be brief.", "id": "m0"},
    {"role": "user", "content": "attachment://a1", "source": "input"},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {"id": "c1", "function": "bash", "arguments": {"cmd": "ls"}},
            {"id": "c2", "function": "bash", "arguments": {"raw": "{cmd"}, "parse_error": "no JSON"},
        ],
    },
    {"role": "tool", "content": "a.txt", "tool_call_id": "c1", "function": "bash"},
    {"role": "tool", "content": "no", "tool_call_id": "c2", "function": "bash", "error": {"type": "parsing"}},
    {"role": "assistant", "content": [{"type": "text", "text": "a.txt is there."}]},
]
TOOLS = [{"name": "bash", "parameters": {"type": "object"}}]


def event(call_id: str) -> Any:
    return {"event": "tool", "id": call_id, "function": "bash", "arguments": {}}


def read(folder: Path, **more: Any) -> list[Any]:
    sample = {
        "id": 1, "epoch": 2, "messages": MESSAGES, "attachments": {"a1": "List the files."},
        "metadata": {"case_id": "w1"}, "events": [{"event": "model", "tools": TOOLS}, event("c1"), event("c2")], **more,
    }  # fmt: skip
    path = folder / "log.json"
    record = {"version": 2, "status": "success", "eval": {"task": "files"}, "samples": [sample, sample]}
    path.write_text(json.dumps(record), "utf-8")
    return list(read_log(path))


def test_each_sample_is_a_conversation(tmp_path: Path) -> None:
    found, again = read(tmp_path)

    assert isinstance(found, Conversation)
    asked, calls, listed, failed, replied = found.events
    assert again.events == found.events
    assert asked == LoggedMessage("List the files.")
    assert isinstance(calls, ModelReply)
    assert [(call.name, call.call_id, call.malformed is None, call.arguments) for call in calls.calls] == [
        ("bash", "c1", True, {"cmd": "ls"}),
        ("bash", "c2", False, "{cmd"),
    ]
    assert listed == FunctionAnswer("a.txt", "c1", "bash")
    assert failed == FunctionAnswer("no", "c2", "bash", failed=True)
    assert replied == ModelReply("a.txt is there.")
    assert (found.system, found.source, found.case_id) == ("Be brief.", "log.json, sample 1, epoch 2", "w1")
    assert (found.functions, found.has_ended, found.error) == (tuple(TOOLS), True, None)


def test_a_sample_whose_agent_failed_says_so(tmp_path: Path) -> None:
    found, _ = read(tmp_path, error={"message": "boom", "traceback": "..."})
    assert (found.error, found.has_ended) == ("boom", False)


def test_a_call_that_only_the_events_tell_of_is_a_problem(tmp_path: Path) -> None:
    problem, _ = read(tmp_path, events=[event("c1"), event("c2"), event("c3")])
    assert str(problem) == ("log.json, sample 1, epoch 2: a call of bash is among its events, and not in its messages")
