"""Secrets in every field that a case, an agent, a model or a service can fill: none is in anything that a run leaves.

Three kinds of canaries: the value of a secret variable of the environment, a token of a known shape, and a value under
a key that says what it is.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.attack.forms import choose
from tests.servers.collector import Collector
from tests.servers.replay import Answer, ReplayServer

Project = Any
VARIABLE = "canary-of-the-environment-4711"
SHAPE = "sk-canaryOfAKnownShape0123456789abcd"
KEYED = "tiger-lily-under-a-key"
SECRETS = (VARIABLE, SHAPE, KEYED)
ENDS = tuple(end for secret in SECRETS for end in (secret[:14], secret[-12:]))  # a text may be cut inside of one
WORDS = f"the key is {VARIABLE}, {SHAPE}"
SAID = f"{WORDS} and password={KEYED}"
HELD: dict[str, Any] = {"password": KEYED, "note": SAID, "deep": [{"api_key": KEYED, "list": [VARIABLE, SHAPE]}]}

AGENTS = f"""
import logging, os, subprocess, sys, warnings
import evalkit

SAID, HELD = {SAID!r}, {HELD!r}

class Holder:
    def __repr__(self):
        return SAID

class LeakError(Exception):
    pass

def leak(task):
    task.call("check", id="A1", **HELD)

@evalkit.agent("arguments")
def arguments(task):
    leak(task)
    task.call("check", id=SAID)
    task.call("check", id=Holder(), note=[Holder()])
    return "done"

@evalkit.agent("response")
def response(task):
    leak(task)
    return SAID

@evalkit.agent("reply")
def reply(task):
    return evalkit.Reply(SAID, data=HELD, stop_reason=SAID)

@evalkit.agent("prints")
def prints(task):
    print(SAID)
    print(SAID, file=sys.stderr)
    logging.getLogger("x").error(SAID)
    warnings.warn(SAID)
    return ""

@evalkit.agent("writes")
def writes(task):
    os.write(1, SAID.encode() + b"\\n")
    os.write(2, SAID.encode() + b"\\n")
    subprocess.run([sys.executable, "-c", f"import sys; print({{SAID!r}}); sys.exit({{SAID!r}})"])
    return ""

@evalkit.agent("raises")
def raises(task):
    local = SAID
    try:
        raise LeakError(SAID)
    except LeakError as error:
        error.add_note(SAID)
        raise ValueError(SAID, HELD) from error

@evalkit.agent("group")
async def group(task):
    raise BaseExceptionGroup(SAID, [LeakError(SAID), ValueError(HELD)])

@evalkit.agent("exits")
def exits(task):
    sys.exit(SAID)

@evalkit.agent("unknown")
def unknown(task):
    task.call("no_such_function", **HELD)
    return SAID

@evalkit.agent("value")
def value(task):
    return Holder()

@evalkit.agent("warns")
def warns(task):
    task.warnings.append(SAID)
    task.state["password"] = SAID
    return ""
"""
INSTRUCTION = """\
---
name: desk
version: "1"
description: d
available_functions:
  - {name: check, description: d, parameters: {type: object, properties: {id: {type: string}}}}
---
Answer.
"""
NAMES = ["arguments", "response", "reply", "prints", "writes", "raises", "group", "exits", "unknown", "value", "warns"]


def plant(project: Project) -> None:
    """Cases that all fail, so that everything is shown, with canaries in each of their own fields."""
    project.write("conftest.py", AGENTS)
    for name in NAMES:
        project.case(
            f"{name}_001",
            agent=name,
            description=SAID,
            input={
                "message": SAID,
                "context": HELD,
                "mock_function_responses": {
                    "check": {"$sequence": [HELD, {"$error": {"message": SAID}}, SAID]},
                    "leave": HELD,
                },
            },
            expected_output={
                "expected_function_calls": [
                    {"function_name": "check", "arguments": {"id": "A1", "password": f"{KEYED}x", "note": f"{SAID}."}},
                    {"function_name": "check", "arguments_contain": {"id": {"$regex": f"{SHAPE}.+"}}},
                ],
                "response_contains": [f"{VARIABLE} or so"],
                "response_excludes": [f"{SHAPE} and"],
            },
        )
    project.case("skipped_001", agent="prints", skip=SAID)
    project.case("quarantined_001", agent="response", xfail=SAID)
    project.write(
        "scenarios/broken_001.yaml", f"agent: prints\nunknown: {json.dumps(SAID)}\ninput: {json.dumps(HELD)}\n"
    )
    project.write(
        "scenarios/lost_001.yaml",
        f"agent: {json.dumps(SAID)}\ninput: {{message: x}}\nexpected_output: {{response_contains: x}}\n",
    )


def find_leaks(folder: Path, *texts: str) -> list[str]:
    """Return where a canary stands: files that the run wrote, and the texts."""
    sources = ("conftest.py", "scenarios")
    files = [
        path
        for path in folder.rglob("*")
        if path.is_file() and path.relative_to(folder).parts[0] not in sources and path.suffix != ".pyc"
    ]
    contents = {path.relative_to(folder).as_posix(): path.read_bytes().decode("utf-8", "replace") for path in files}
    contents |= {f"output {number}": text for number, text in enumerate(texts)}
    leaks = []
    for name, content in contents.items():
        for end in ENDS:
            at = content.find(end)
            if at >= 0:
                leaks.append(f"{name}: {content[max(at - 60, 0) : at + 40]!r}")
    return leaks


MODES = [("-vv", "--tb=short"), ("-n", "2"), ("--evalkit-concurrency=1", "-rA", "--evalkit-show=conversation")]


@pytest.mark.parametrize("options", choose(MODES[1:], MODES))
def test_no_artefact_of_a_run_has_a_secret(
    project: Project, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    monkeypatch.setenv("SHOP_TOKEN", VARIABLE)
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(project.root / "summary.md"))
    plant(project)
    conftest = project.root / "conftest.py"
    # The journal stays where a run file could not be written.
    conftest.write_text(
        conftest.read_text() + "\ndef pytest_sessionfinish(session):\n    import shutil, pathlib\n"
        "    for path in pathlib.Path('.evalkit').glob('*.journal.jsonl'): shutil.copy(path, 'kept.jsonl')\n"
    )
    with Collector() as collector:
        result = project.run_afresh(
            "--junitxml=junit.xml", "--evalkit-html=report.html", f"--evalkit-otlp={collector.address}", *options
        )
    assert result.ret == 1, result.stdout.str()
    written = {path.name for path in project.root.iterdir()} | {path.name for path in project.root.glob(".evalkit/*")}
    assert {"junit.xml", "report.html", "summary.md", "kept.jsonl", "last-run.json"} <= written
    assert collector.taken
    assert "::error" in result.stdout.str()
    spans = [body.decode("utf-8", "replace") for _, body in collector.taken]
    assert find_leaks(project.root, result.stdout.str(), result.stderr.str(), *spans) == []
    for form in choose(("trace", "json"), ("trace", "json", "html", "markdown", "github", "junit", "otel")):
        command = (sys.executable, "-m", "evalkit", "report", ".evalkit/last-run.json", "--format", form)
        told = project.pytester.run(*command)
        assert find_leaks(project.root, told.stdout.str(), told.stderr.str()) == []


@pytest.mark.parametrize("status", [200, 400, 401, 500])
def test_no_recording_has_a_secret(project: Project, monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    """Live, against a service that says everything again: in replies, in errors, in headers. What merely stands at a
    key such as `password` is the model's own word in its reply."""
    monkeypatch.setenv("OPENAI_API_KEY", VARIABLE)
    call = {
        "id": VARIABLE,
        "function": {"name": "check", "arguments": json.dumps({"id": "A1", "password": VARIABLE, "note": WORDS})},
        "type": "function",
    }
    first = {"choices": [{"message": {"content": WORDS, "tool_calls": [call]}, "finish_reason": "tool_calls"}]}
    last = {"choices": [{"message": {"content": WORDS}, "finish_reason": "stop"}]}
    project.write("scenarios/desk.md", INSTRUCTION)
    project.case("asks_001", agent="desk.md", input={"message": SAID, "mock_function_responses": {"check": HELD}})
    server = ReplayServer()
    headers = {"x-echo": SAID, "set-cookie": SAID, "x-request-id": VARIABLE}
    bodies = [json.dumps(first), json.dumps(last)] if status == 200 else [json.dumps({"error": {"message": SAID}})] * 9
    server.answers = [Answer(body, status, headers=headers) for body in bodies]
    result = project.run_afresh(
        f"--evalkit-model=openai:m?base_url={server.url}/v1&retries=0",
        "--evalkit-record=all",
        "-vv",
        "--junitxml=j.xml",
    )
    server.close()
    assert server.received
    assert server.received[0].headers["authorization"] == f"Bearer {VARIABLE}"
    assert result.ret in (1, 6)
    assert find_leaks(project.root, result.stdout.str(), result.stderr.str()) == []
    assert bool(list(project.root.glob("mocks/cassettes/**/*.yaml"))) is (status == 200)


CLIENTS = {
    "requests": "requests.request('POST', url, json=body, headers=headers, timeout=5)",
    "httpx": "httpx.request('POST', url, json=body, headers=headers, verify=False)",
    "urllib3": "urllib3.PoolManager().request('POST', url, json=body, headers=headers)",
}
OWN_CLIENT = """
import httpx, requests, urllib3
import evalkit

SAID, HELD, VARIABLE = {said!r}, {held!r}, {variable!r}

@evalkit.agent("asks")
def asks(task):
    headers = {{"authorization": f"Bearer {{VARIABLE}}", "cookie": f"s={{VARIABLE}}"}}
    asked = {{"model": "m", "messages": [{{"role": "user", "content": SAID}}], **HELD}}
    for path, body in (("/login?api_key=" + VARIABLE, {{"text": SAID, **HELD}}), ("/v1/chat/completions", asked)):
        url = {url!r} + path
        {use}
    return "done"
"""


@pytest.mark.parametrize("client", choose(["requests"], list(CLIENTS)))
@pytest.mark.parametrize(("status", "is_streamed"), [(200, False), (200, True), (401, False)])
def test_no_recording_of_an_own_client_has_a_secret(
    project: Project, monkeypatch: pytest.MonkeyPatch, client: str, status: int, is_streamed: bool
) -> None:
    """A model says the values that are known for certain; a service says them all."""
    monkeypatch.setenv("SHOP_TOKEN", VARIABLE)
    server = ReplayServer()
    said = f"the key is {VARIABLE} and {SHAPE}"
    message = {"object": "chat.completion", "choices": [{"message": {"role": "assistant", "content": said}}]}
    chunks: list[Any] = [
        {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": piece}}]} for piece in said
    ]
    chunks[-1]["choices"][0]["finish_reason"] = "stop"
    events = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks)
    headers = {
        "x-echo": SAID,
        "set-cookie": f"s={VARIABLE}; Path=/",
        "x-auth-token": KEYED,
        "location": f"/?token={KEYED}",
    }
    replied = events if is_streamed else json.dumps(message)
    refused = json.dumps({"error": {"message": SAID}})
    server.answers = [Answer(json.dumps({**HELD, "text": SAID}), 200, headers=headers)]
    server.answers += [Answer(replied if status == 200 else refused, status, headers=headers)]
    names = {"said": SAID, "held": HELD, "variable": VARIABLE, "url": server.url, "use": CLIENTS[client]}
    project.write("conftest.py", OWN_CLIENT.format(**names))
    project.case("asks_001", agent="asks", input={"message": SAID})
    result = project.run_afresh("--evalkit-record=all", "-vv", "--junitxml=j.xml")
    server.close()

    assert len(server.received) == 2
    assert find_leaks(project.root, result.stdout.str(), result.stderr.str()) == []
    assert bool(list(project.root.glob("mocks/cassettes/**/*.http.yaml"))) is (status == 200)
