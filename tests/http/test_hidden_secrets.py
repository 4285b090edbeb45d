"""Secrets of own clients' traffic: none is in a recording, and replay goes the way that the recording went."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from evalkit.agents.task import Task
from evalkit.models.cassettes.http.hidden_secrets import hide_secrets
from evalkit.models.cassettes.stand_ins import build_stand_in
from evalkit.records.verdict import Verdict
from tests.servers.replay import Answer

Run = Callable[..., Verdict]
TOKEN = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P"
SESSION = "Zx81-session-of-ana"
KEY = "sk-abcdefghijklmnop1234"


@pytest.mark.parametrize(
    ("secret", "stand_in"),
    [
        ("tiger-lily-4711", "redacted7xxxxxx"),
        ("short", "redacted7"),
        (KEY, "sk-redacted7xxxxxxxxxxx"),
        ("ghp_abcdefghijklmnopqrst", "ghp_redacted7xxxxxxxxxxx"),
        ("123456789", "000000007"),
        ("0123456789abcdef0123", "00000000000000000007"),
        ("6f9619ff-8b86-d011-b42d-00cf4fc964ff", "00000000-0000-4000-8000-000000000007"),
    ],
)
def test_a_stand_in_is_as_long_and_of_the_same_kind(secret: str, stand_in: str) -> None:
    assert build_stand_in(secret, 7) == stand_in


def test_the_stand_in_of_a_web_token_is_one() -> None:
    head, claims, signature = build_stand_in(TOKEN, 7).split(".")

    assert json.loads(base64.urlsafe_b64decode(head + "==")) == {"alg": "none"}
    assert json.loads(base64.urlsafe_b64decode(claims + "==")) == {"redacted": 1000007}
    assert signature == "x"


def exchange(request: Any, response: Any, url: str = "https://h/x", **more: Any) -> dict[str, Any]:
    return {
        "request": {"method": "POST", "url": url, "json": request},
        "response": {"status": 200, "json": response, **more},
    }


def reply(**message: Any) -> dict[str, Any]:
    return {"object": "chat.completion", "choices": [{"message": {"role": "assistant", **message}}]}


ASKED = {"messages": [{"role": "user", "content": "hi"}]}
CHAT = "https://h/v1/chat/completions"


@pytest.mark.parametrize(
    ("recorded", "gone", "kept", "touched"),
    [
        # a secret that a service gives out is one stand-in wherever it stands later on
        ([exchange({}, {"token": SESSION}), exchange({"sid": SESSION}, {"ok": SESSION}, f"https://h/{SESSION}")],
         [SESSION], ["redacted1xxxxxxxxxx"], []),
        # what a model says at such a key is a word of its own
        ([exchange(ASKED,
                   reply(tool_calls=[{"function": {"name": "f", "arguments": '{"password": "Secret-1x"}'}}]), CHAT)],
         [], ["Secret-1x"], []),
        # and stays one where the agent sends it on
        ([exchange(ASKED, reply(content="password: Secret-1x"), CHAT),
          exchange({"password": "Secret-1x"}, {"password": "Secret-1x"})],
         [], ["password: Secret-1x"], []),
        # but for what is known for certain
        ([exchange(ASKED, reply(content=f"it is {KEY} and env-value-1"), CHAT)],
         [KEY, "env-value-1"], ["it is sk-redacted"], ["/v1/chat/completions"]),
        ([exchange({**ASKED, "api_key": "tiger-lily-2"}, reply(content="x"), CHAT)],
         ["tiger-lily-2"], [], []),
        # tokens of a text are none
        ([exchange({}, {"token": "warranty", "next_page_token": "abc", "logprobs": [{"token": "Hel"}]})],
         [], ["warranty", "abc", "Hel"], []),
        # credentials of requests, wherever a service repeats them
        ([exchange({}, {"error": "wrong key: cred-of-4711"}, headers={"location": "/a?token=abc1"})],
         ["cred-of-4711", "abc1"], ["wrong key: redacted"], []),
        ([exchange({}, {}, headers={"set-cookie": [f"s={SESSION}; Path=/; Expires=Wed, 01 Jan 2030", "lang=en"]})],
         [SESSION, "2030"], ["Path=/", "lang=en"], []),
    ],
)  # fmt: skip
def test_secrets_are_hidden_and_words_are_not(
    recorded: list[dict[str, Any]], gone: list[str], kept: list[str], touched: list[str]
) -> None:
    hidden, places = hide_secrets(recorded, ["env-value-1"], ["cred-of-4711"])
    text = json.dumps(hidden)

    assert [secret for secret in gone if secret in text] == []
    assert [word for word in kept if word not in text] == []
    assert places == touched


PACKED = gzip.compress(b"a ") + gzip.compress(KEY.encode())


@pytest.mark.parametrize("content", [b"\x00" + KEY.encode(), PACKED], ids=["binary", "packed"])
def test_a_body_in_which_no_secret_can_be_replaced_is_left_out(content: bytes) -> None:
    packed = {"headers": {"content-encoding": "gzip"}} if content.startswith(b"\x1f") else {}
    response = {"status": 200, "base64": base64.b64encode(content).decode(), **packed}
    (hidden,), places = hide_secrets(
        [{"request": {"method": "GET", "url": "https://h/x"}, "response": response}], (), ()
    )

    assert (hidden["response"]["text"], "base64" in hidden["response"], places) == ("[redacted]", False, ["/x"])


@pytest.mark.parametrize("cuts", [[3], [5, 9], [1, 2, 3, 4, 5, 6, 7, 8], []])
def test_a_secret_that_a_stream_brings_in_pieces_is_hidden(cuts: list[int]) -> None:
    said = f"it is {KEY}, and {KEY}."
    begin = said.index(KEY)
    bounds = [0, *(begin + cut for cut in cuts), *(begin + len(KEY) + 6 + cut for cut in cuts), len(said)]
    texts = [said[start:end] for start, end in pairwise(bounds)]
    chunk = {"object": "chat.completion.chunk"}
    events = [{**chunk, "choices": [{"index": 0, "delta": {"content": text}}]} for text in texts]
    stream = "".join(f"data: {json.dumps(event)}\r\n\r\n" for event in events) + "data: [DONE]\r\n\r\n"
    asked = {"method": "POST", "url": CHAT, "json": {**ASKED, "stream": True}}
    (hidden,), places = hide_secrets([{"request": asked, "response": {"status": 200, "text": stream}}], (), ())

    lines = [line.removeprefix("data: ") for line in hidden["response"]["text"].split("\r\n\r\n")]
    pieces = [json.loads(line)["choices"][0]["delta"]["content"] for line in lines if line.startswith("{")]
    name = build_stand_in(KEY, 1)
    assert "".join(pieces) == f"it is {name}, and {name}."
    assert len(pieces) == len(texts)
    assert places == ["/v1/chat/completions"]


def test_an_agent_that_logs_in_goes_on_with_the_stand_in(echo: Any, run: Run, cassette: Path) -> None:
    """A token in JSON, in an address, in a header of the agent's and in a cookie; another on each day."""
    number = 0

    def answer(path: str, body: bytes, headers: dict[str, str]) -> Answer:
        nonlocal number
        if path == "/login":
            number += 1
            session = f"{SESSION}{number}"
            return Answer(
                json.dumps({"token": session, "next": f"/orders?sid={session}"}), headers={"set-cookie": f"s={session}"}
            )
        asked = json.loads(body)
        return Answer(json.dumps({"text": "re: hi" if asked["session"] in path else "no", "for": asked["session"]}))

    echo.reply = answer

    def agent(task: Task) -> str:
        import requests

        with requests.Session() as session:
            login = session.post(f"{echo.url}/login", json={"user": "ana", "password": "tiger-4711"}, timeout=5).json()
            headers = {"authorization": f"Bearer {login['token']}"}
            url = echo.url + login["next"]
            order = session.post(url, json={"session": login["token"]}, headers=headers, timeout=5).json()
            assert order["for"] == login["token"] == session.cookies["s"]
            return str(order["text"])

    assert run(agent, record="all").status == "passed"
    text = cassette.read_text()
    assert [secret for secret in (SESSION, "tiger-4711") if secret in text] == []
    replayed = run(agent)
    assert replayed.status == "passed", replayed.reasons
    assert number == 1


def test_recordings_with_one_word_for_all_secrets_are_replayed(echo: Any, run: Run, cassette: Path) -> None:
    cassette.parent.mkdir(parents=True)
    cassette.write_text(f"""\
evalkit_http_cassette: 1
recorded: true
exchanges:
  - request: {{method: POST, url: "{echo.url}/login?key=[redacted]", json: {{password: "[redacted]"}}}}
    response: {{status: 200, headers: {{content-type: application/json}}, json: {{token: "[redacted]"}}}}
  - request: {{method: POST, url: "{echo.url}/ask", json: {{token: "[redacted]"}}}}
    response: {{status: 200, headers: {{content-type: application/json}}, json: {{text: "re: hi"}}}}
""")

    def agent(task: Task) -> str:
        import requests

        login = requests.post(f"{echo.url}/login?key={KEY}", json={"password": "tiger-4711"}, timeout=5).json()
        return str(requests.post(f"{echo.url}/ask", json={"token": login["token"]}, timeout=5).json()["text"])

    verdict = run(agent)
    assert verdict.status == "passed", verdict.reasons


def test_a_recording_says_that_a_model_said_a_secret(clients: Any, echo: Any, run: Run, cassette: Path) -> None:
    said = {"object": "chat.completion", "choices": [{"message": {"role": "assistant", "content": f"re: hi, {KEY}"}}]}
    echo.reply = lambda *request: Answer(json.dumps(said))
    verdict = run(clients["requests"], record="all")

    assert verdict.warnings == (
        "mocks/cassettes/scenarios/s/case_001.http.yaml: a reply holds a secret (/v1/chat/completions), which is "
        "redacted in the recording: a check of that value will fail on replay",
    )
    assert KEY not in cassette.read_text()
    assert run(clients["requests"]).status == "passed"
