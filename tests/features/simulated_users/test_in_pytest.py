"""Simulated users under pytest: with workers, in the reports, and refused to strangers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

CONFTEST = """
import evalkit

@evalkit.agent("answering_desk")
def desk(task):
    if "SN" in task.message:
        return f"I opened {task.call('create_ticket')['id']}."
    return "What is the serial number?"
"""
CASE = """
agent: answering_desk
input:
  user:
    goal: Have the drill repaired
    facts: {serial_number: SN48213}
    stop_when: {called: create_ticket}
    PLAYER
  mock_function_responses: {create_ticket: {id: T-1}}
expected_output: {expected_function_calls: [create_ticket]}
"""
SCRIPT = """opening: My drill is broken.
    script: [{say: "{{ facts.serial_number }}"}]"""
CASSETTE = """model: gemini:user-x
turns:
  - {text: My drill is broken., usage: {input_tokens: 100, output_tokens: 5}}
  - {text: It says SN48213., usage: {input_tokens: 120, output_tokens: 6}}
"""


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(users="def answer(conversation):\n    return 'It says SN48213.'\n")
    players = {"script_001": SCRIPT, "model_001": "persona: Short-spoken", "call_001": "call: users:answer"}
    for name, player in players.items():
        path = pytester.path / "scenarios" / f"{name}.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(CASE.replace("PLAYER", player))
    cassette = pytester.path / "mocks/cassettes/scenarios/model_001.user.yaml"
    cassette.parent.mkdir(parents=True)
    cassette.write_text(CASSETTE)
    return pytester


def test_workers_and_reports_know_them(project: pytest.Pytester) -> None:
    done = project.runpytest_subprocess("--evalkit", "-n2", "--evalkit-trace=all", "--evalkit-html=report.html")
    assert done.ret == 0, done.stdout.str()
    done.stdout.fnmatch_lines(['     user 2 (simulated): "It says SN48213."'])
    run = json.loads(Path(project.path, ".evalkit/last-run.json").read_text())
    counts = run["metadata"]["accounting"]["simulated_users"]
    assert (counts["conversations"], counts["messages"]) == (3, 5)
    assert (counts["written"], counts["cost_usd"]) == (0, 0.0)  # a person wrote what the model says
    assert "simulated user" in Path(project.path, "report.html").read_text()


def test_strangers_have_no_callable_play_the_user(project: pytest.Pytester) -> None:
    done = project.runpytest_inprocess("--evalkit", "--evalkit-untrusted")
    assert done.ret == 6
    done.stdout.fnmatch_lines(["*call_001.yaml:*user.call: 'users:answer' is refused: *"])
    done.stdout.fnmatch_lines(["*2 passed, 1 error*"])


def test_the_option_names_a_model_that_can_be_asked(project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMINI_API_KEY", "key-of-a-test")
    project.makeini("[pytest]\nevalkit_simulator = gemini:user-x?timeout_s=5")
    done = project.runpytest_inprocess("--evalkit", "-k", "script_001")
    assert done.ret == 0
    done.stdout.fnmatch_lines(["evalkit *: offline, *; gemini:user-x plays simulated users that have no recording"])
    run = json.loads(Path(project.path, ".evalkit/last-run.json").read_text())
    assert run["metadata"]["settings"]["simulator"] == "gemini:user-x?timeout_s=5"
    refused = project.runpytest_inprocess("--evalkit", "--evalkit-simulator=nobody:x")
    assert refused.ret == pytest.ExitCode.USAGE_ERROR
    refused.stderr.fnmatch_lines(["*the simulated user: *nobody*"])
