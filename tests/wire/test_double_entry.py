"""The double entry: what is explained, and what is not."""

import json
from typing import Any

import pytest

from evalkit.jsonvalue import JsonDict
from evalkit.records.transcript import ModelCall, ModelRequest, ModelTurn
from evalkit.wire import openai_chat, openai_responses
from evalkit.wire.ledger import Ledger, read_model_request
from evalkit.wire.records import Call, Failure, Reply, Request, Text
from evalkit.wire.table import read_exchange

CallTriple = tuple[str, str, Any]  # id, name, arguments
Step = Request | Reply | ModelTurn


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


def list_findings(*steps: Step) -> list[tuple[str, str]]:
    ledger, found = Ledger(), []
    for step in steps:
        if isinstance(step, Reply):
            ledger.add_reply(step)
        elif isinstance(step, ModelTurn):
            ledger.add_turn(step)
        else:
            found += [(f.kind, f.call.name if f.call else f.detail) for f in ledger.add_request(step)]
    return found


def own(*messages: JsonDict) -> Request:
    return read_model_request(ModelRequest(messages=messages))


def turn(*calls: ModelCall) -> ModelTurn:
    return ModelTurn(text="" if calls else "I look", calls=calls)


def turn_of(name: str) -> JsonDict:
    return {"role": "model", "turn": turn(ModelCall(name=name, arguments={"q": 1}))}


def results_of(name: str) -> JsonDict:
    return {"role": "function", "results": [(ModelCall(name=name, arguments={"q": 1}), "ok")]}


USER = {"role": "user", "text": "a"}
FIND = ("x1", "find", {"q": 1})
OUTPUT = {"type": "function_call_output", "call_id": "x1", "output": "1"}

CASES: dict[str, tuple[list[Step], list[tuple[str, str]]]] = {
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


CASES |= {
    "the task's own model": (
        [own(USER), turn(ModelCall(name="find", arguments={"q": 1})), own(USER, turn_of("find"), results_of("find"))],
        [],
    ),
    "a reply that the agent makes up for its own model": (
        [own(USER), turn(), own(USER, turn_of("drop"), results_of("drop"))],
        [("unseen_call", "drop")],
    ),
    "its own model and a client, by turns": (
        [own(USER), turn(ModelCall(name="find", call_id="x1")), chat(user("a"), assistant(FIND), tool("x1"))],
        [],
    ),
    "an answer without its call, told once": (
        [chat(user("a")), reply(), chat(user("a"), tool("z1")), chat(user("a"), tool("z1"))],
        [("unseen_answer", "")],
    ),
    "short ids that several replies share": (
        [
            chat(user("a")),
            reply(("0", "find", {"q": 1})),
            chat(user("a"), assistant(("0", "find", {"q": 1})), tool("0")),
            reply(("0", "drop", {})),
            chat(user("a"), assistant(("0", "find", {"q": 1})), tool("0"), assistant(("0", "drop", {})), tool("0")),
        ],
        [],
    ),
    "a call beside those of a reply": (
        [chat(user("a")), reply(FIND), chat(user("a"), assistant(FIND, ("y", "drop", {})), tool("x1"), tool("y"))],
        [("unseen_call", "drop")],
    ),
    "an instruction that changes with each request": (
        [chat(system("1"), user("a")), reply(FIND), chat(system("2"), user("a"), assistant(FIND), tool("x1"))],
        [],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_double_entry(name: str) -> None:
    steps, expected = CASES[name]
    assert list_findings(*steps) == expected


# -- recorded conversations: what is found is what pydantic-ai writes into histories itself, and one whose beginning
# stands in another file

RECORDED = ["streams_openai", "streams_anthropic", "streams_gemini", "streams_compatible"]
KNOWN = {"search_tools"}  # the adapter's `own_calls`
ELSEWHERE = {"get_exchange_rate"}


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_conversations_give_no_false_finding(name: str, corpus: Any) -> None:
    conversations: dict[str, list[Any]] = {}
    for row in corpus(name):
        conversations.setdefault(row.get("conversation") or row["id"], []).append(row)
    found, with_history = [], 0
    for key, rows in conversations.items():
        ledger = Ledger()
        for row in sorted(rows, key=lambda row: row.get("turn") or 0):
            body = json.dumps(row["request"] or {}).encode()
            url = f"https://{row['host']}{row['path']}"
            exchange = read_exchange("POST", url, body, row["status"] or 200, row["raw"].encode())
            if exchange is None or exchange.reply is None:
                continue
            with_history += any(isinstance(item, Call) for item in exchange.request.items)
            findings = ledger.add_request(exchange.request)
            found += [(key, f) for f in findings if f.call is None or f.call.name not in KNOWN | ELSEWHERE]
            ledger.add_reply(exchange.reply, exchange.request)

    assert found == []
    assert with_history > 20


# -- failures

FAILED = Failure("HTTP 500", 500)
Outcome = tuple[Request, Failure | None]
ENDINGS: dict[str, tuple[list[Outcome], bool]] = {
    "answered": ([(chat(user("a")), None)], False),
    "failed": ([(chat(user("a")), FAILED)], True),
    "retried": ([(chat(user("a")), FAILED), (chat(user("a")), None)], False),
    "failed later": ([(chat(user("a")), None), (chat(user("a"), user("b")), FAILED)], True),
    "another conversation": ([(chat(user("a")), FAILED), (chat(user("b")), None)], True),
    "another instruction": ([(chat(system("1"), user("a")), FAILED), (chat(system("2"), user("a")), None)], False),
    "another API": ([(chat(user("a")), FAILED), (responses(input=[user("a")]), None)], False),
}


@pytest.mark.parametrize("name", ENDINGS)
def test_a_failure_lasts_until_a_later_request_of_its_conversation_is_answered(name: str) -> None:
    outcomes, lasts = ENDINGS[name]
    ledger = Ledger()
    for request, failure in outcomes:
        ledger.add_outcome(request, failure)
    assert (ledger.find_failure() is not None) == lasts


def test_a_request_that_goes_on_from_a_reply_is_of_its_conversation() -> None:
    ledger = Ledger()
    first, second = responses(input="a"), responses(input=[OUTPUT], previous_response_id="resp_1")
    ledger.add_outcome(first, None)
    ledger.add_reply(reply(FIND, reply_id="resp_1"), first)
    ledger.add_outcome(second, FAILED)
    ledger.add_outcome(responses(input=[user("a"), OUTPUT]), None)
    assert ledger.find_failure() is None


def test_the_slower_of_two_requests_that_were_sent_at_once_may_fail() -> None:
    ledger = Ledger()
    ledger.add_outcome(chat(user("a")), None)
    ledger.add_outcome(chat(user("a")), FAILED, waited_s=60)
    assert ledger.find_failure() is None
