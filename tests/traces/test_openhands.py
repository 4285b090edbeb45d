"""Events of OpenHands: its actions hold the replies of the model, its observations the answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from evalkit.hosts.traces.log_formats import Conversation, FunctionAnswer, LoggedMessage, ModelReply
from evalkit.hosts.traces.read_log import read_log


def reply(reply_id: str, *calls: tuple[str, str, Any], text: str | None = None) -> Any:
    asked = [
        {"id": call_id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        for call_id, name, arguments in calls
    ]
    message = {"role": "assistant", "content": text, "tool_calls": asked}
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    return {
        "id": reply_id,
        "object": "chat.completion",
        "model": "m",
        "choices": [{"message": message}],
        "usage": usage,
    }


def about(call_id: str, name: str, said: Any) -> Any:
    return {"tool_call_metadata": {"function_name": name, "tool_call_id": call_id, "model_response": said}}


def event(source: str, **more: Any) -> Any:
    return {"id": 1, "source": source, "message": "", **more}


LISTS = reply("r1", ("c1", "execute_bash", {"command": "ls"}), ("c2", "read", {"path": "a"}), text="I look.")
ENDS = reply("r2", ("c3", "finish", {"message": "Done."}))
EVENTS = [
    event("agent", action="system", args={"content": "Be brief.", "tools": [{"function": {"name": "execute_bash"}}]}),
    event("user", action="message", args={"content": "List the files."}),
    event("user", action="recall", args={"query": "x"}),
    event("environment", observation="recall", content="x"),
    event("agent", action="run", args={"command": "ls"}, **about("c1", "execute_bash", LISTS)),
    event("agent", action="read", args={"path": "a"}, **about("c2", "read", LISTS)),
    event("agent", observation="run", content="a.txt", **about("c1", "execute_bash", LISTS)),
    event("agent", observation="error", content="no such file", **about("c2", "read", LISTS)),
    event("agent", action="finish", args={"final_thought": "Done."}, **about("c3", "finish", ENDS)),
]


def read(folder: Path, *records: Any, lines: bool = False) -> Any:
    path = folder / ("log.jsonl" if lines else "log.json")
    path.write_text("\n".join(map(json.dumps, records)) if lines else json.dumps(list(records)), "utf-8")
    (found,) = read_log(path)
    return found


@pytest.mark.parametrize("is_of_benchmark", [True, False])
def test_events_are_a_conversation(is_of_benchmark: bool, tmp_path: Path) -> None:
    record = {"instance_id": "i1", "history": EVENTS, "error": None}
    found = read(tmp_path, record, lines=True) if is_of_benchmark else read(tmp_path, *EVENTS)

    assert isinstance(found, Conversation)
    asked, looks, listed, failed, ends, ended = found.events
    assert asked == LoggedMessage("List the files.")
    assert isinstance(looks, ModelReply)
    assert (looks.text, looks.model) == ("I look.", "m")
    assert [(call.name, call.arguments, call.call_id) for call in looks.calls] == [
        ("execute_bash", {"command": "ls"}, "c1"),
        ("read", {"path": "a"}, "c2"),
    ]
    assert listed == FunctionAnswer("a.txt", "c1", "execute_bash")
    assert failed == FunctionAnswer("no such file", "c2", "read", failed=True)
    assert isinstance(ends, ModelReply)
    assert ended == FunctionAnswer(None, "c3", "finish", is_missing=True)
    assert (found.system, found.output, found.has_ended) == ("Be brief.", "Done.", True)
    assert found.functions == ({"function": {"name": "execute_bash"}},)


@pytest.mark.parametrize(
    ("strange", "problem"),
    [
        (event("agent", action="run", args={"command": "ls"}), "is the action 'run' without the reply of the model"),
        ({"action": "run", "command": "ls"}, "is the action 'run' without the reply of the model"),
        (event("agent", observation="error", content="no"), "is an error of OpenHands whose call is not on record"),
        (
            event("agent", action="run", args={}, **about("c9", "execute_bash", reply("r9", text="ls"))),
            "holds no call in the reply of the model that asked for it",
        ),
    ],
)
def test_an_action_whose_call_is_not_on_record_is_a_problem(strange: Any, problem: str, tmp_path: Path) -> None:
    found = read(tmp_path, {"history": [*EVENTS, strange]}, lines=True)
    assert problem in str(found)


def test_what_a_user_does_is_no_call_of_the_agents(tmp_path: Path) -> None:
    events = [
        *EVENTS,
        event("user", action="run", args={"command": "ls"}),
        event("user", observation="run", content=""),
    ]
    assert read(tmp_path, *events).events == read(tmp_path, *EVENTS).events
