"""The double entry: what is explained, and what is not."""

import json
from typing import Any

import pytest

from evalkit.jsonvalue import JsonDict
from evalkit.wire import openai_chat, openai_responses
from evalkit.wire.ledger import Ledger
from evalkit.wire.records import Call, Reply, Request, Text

CallTriple = tuple[str, str, Any]  # id, name, arguments


def reply(*calls: CallTriple, text: str = "", reply_id: str | None = None) -> Reply:
    items = (Call(name=name, arguments=arguments, call_id=call_id) for call_id, name, arguments in calls)
    return Reply(items=(*([Text(text)] if text else []), *items), reply_id=reply_id)


def assistant(*calls: CallTriple) -> JsonDict:
    listed = [
        {"id": call_id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        for call_id, name, arguments in calls
    ]
    return {"role": "assistant", "content": None, "tool_calls": listed}


def tool(call_id: str, value: str = "ok") -> JsonDict:
    return {"role": "tool", "tool_call_id": call_id, "content": value}


def system(text: str) -> JsonDict:
    return {"role": "system", "content": text}


def user(text: str) -> JsonDict:
    return {"role": "user", "content": text}


def chat(*messages: JsonDict) -> Request:
    return openai_chat.read_request({"model": "m", "messages": list(messages)})


def responses(**keys: Any) -> Request:
    return openai_responses.read_request({"model": "m", **keys})


def list_findings(*steps: Request | Reply) -> list[tuple[str, str]]:
    ledger, found = Ledger(), []
    for step in steps:
        if isinstance(step, Reply):
            ledger.add_reply(step)
        else:
            found += [(f.kind, f.call.name if f.call else f.detail) for f in ledger.add_request(step)]
    return found


FIND = ("x1", "find", {"q": 1})
OUTPUT = {"type": "function_call_output", "call_id": "x1", "output": "1"}

CASES: dict[str, tuple[list[Request | Reply], list[tuple[str, str]]]] = {
    "seen": ([chat(user("a")), reply(FIND), chat(user("a"), assistant(FIND), tool("x1"))], []),
    "unseen": (
        [chat(user("a")), reply(text="I look"), chat(user("a"), assistant(FIND), tool("x1"))],
        [("unseen_call", "find")],
    ),
    "unseen, told once": (
        [
            chat(user("a")),
            reply(text="I look"),
            chat(user("a"), assistant(FIND), tool("x1")),
            reply(),
            chat(user("a"), assistant(FIND), tool("x1"), user("b")),
        ],
        [("unseen_call", "find")],
    ),
    "examples in the prompt": (
        [
            chat(user("ex"), assistant(FIND), tool("x1"), user("a")),
            reply(),
            chat(user("ex"), assistant(FIND), tool("x1"), user("a"), user("b")),
        ],
        [],
    ),
    "an example, and an unseen call of its own": (
        [
            chat(user("ex"), assistant(FIND), tool("x1"), user("a")),
            reply(),
            chat(user("ex"), assistant(FIND), tool("x1"), user("a"), assistant(("y", "drop", {})), tool("y")),
        ],
        [("unseen_call", "drop")],
    ),
    "ids rewritten": (
        [chat(user("a")), reply(FIND), chat(user("a"), assistant(("z9", "find", {"q": 1})), tool("z9"))],
        [],
    ),
    "ids rewritten, arguments repaired": (
        [chat(user("a")), reply(("x1", "find", "{q:1")), chat(user("a"), assistant(("z9", "find", {})), tool("z9"))],
        [],
    ),
    "arguments edited": (
        [chat(user("a")), reply(FIND), chat(user("a"), assistant(("x1", "find", {"q": "***"})), tool("x1"))],
        [],
    ),
    "twice in the history, asked for once": (
        [
            chat(user("a")),
            reply(FIND),
            chat(user("a"), assistant(FIND), tool("x1"), assistant(("x2", "find", {"q": 2})), tool("x2")),
        ],
        [("unseen_call", "find")],
    ),
    "a sliding window": ([chat(user("a")), reply(FIND), chat(assistant(FIND), tool("x1"), user("b"))], []),
    "summarised": ([chat(user("a")), reply(FIND), chat(system("summary: find was called"), user("go on"))], []),
    "retried": (
        [
            chat(user("a")),
            chat(user("a")),
            reply(FIND),
            reply(("x2", "find", {"q": 1})),
            chat(user("a"), assistant(("x2", "find", {"q": 1})), tool("x2")),
        ],
        [],
    ),
    "parallel agents": (
        [
            chat(system("A"), user("a")),
            chat(system("B"), user("b")),
            reply(FIND),
            reply(("y1", "get", {})),
            chat(system("B"), user("b"), assistant(("y1", "get", {})), tool("y1")),
            chat(system("A"), user("a"), assistant(FIND), tool("x1")),
        ],
        [],
    ),
    "handed over with its history": (
        [
            chat(system("A"), user("a")),
            reply(("h", "transfer", {})),
            chat(system("B"), user("a"), assistant(("h", "transfer", {})), tool("h")),
        ],
        [],
    ),
    "handed over, the name changed": (
        [
            chat(system("A"), user("a")),
            reply(("h", "transfer_to_b", {})),
            chat(system("B"), user("a"), assistant(("h", "handoff", {})), tool("h")),
        ],
        [("unseen_call", "handoff")],
    ),
    "a call written as text": (
        [
            chat(user("a")),
            reply(text='<tool_call>{"name": "find", "arguments": {"q": 1}}</tool_call>'),
            chat(user("a"), assistant(FIND), tool("x1")),
        ],
        [],
    ),
    "a second agent with its own examples": (
        [chat(user("a")), reply(), chat(user("ex"), assistant(FIND), tool("x1"), user("b"))],
        [],
    ),
    "the second user turn": (
        [
            chat(user("a")),
            reply(FIND),
            chat(user("a"), assistant(FIND), tool("x1")),
            reply(text="done"),
            chat(user("a"), assistant(FIND), tool("x1"), {"role": "assistant", "content": "done"}, user("b")),
            reply(("x2", "find", {"q": 2})),
            chat(
                user("a"),
                assistant(FIND),
                tool("x1"),
                {"role": "assistant", "content": "done"},
                user("b"),
                assistant(("x2", "find", {"q": 2})),
                tool("x2"),
            ),
        ],
        [],
    ),
}

CASES |= {
    "previous_response_id": (
        [
            responses(input="a"),
            reply(FIND, reply_id="resp_1"),
            responses(input=[OUTPUT], previous_response_id="resp_1"),
        ],
        [],
    ),
    "previous_response_id of before the run": (
        [responses(input=[OUTPUT], previous_response_id="resp_0"), reply(reply_id="resp_1")],
        [],
    ),
    "previous_response_id, unseen": (
        [responses(input="a"), reply(reply_id="resp_1"), responses(input=[OUTPUT], previous_response_id="resp_9")],
        [("unseen_reply", "resp_9")],
    ),
    "an answer to an unseen call": (
        [responses(input="a"), reply(reply_id="resp_1"), responses(input=[OUTPUT], previous_response_id="resp_1")],
        [("unseen_answer", "")],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_double_entry(name: str) -> None:
    steps, expected = CASES[name]
    assert list_findings(*steps) == expected
