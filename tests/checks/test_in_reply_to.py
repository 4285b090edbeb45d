"""`in_reply_to` of an expected call: which message of the user the agent was answering when it made the call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import evalkit
from evalkit.checks.compile import compile_expectation
from evalkit.hosts.casecheck.smoke import run_smoke_check
from evalkit.records.settings import Settings
from evalkit.records.verdict import Verdict
from evalkit.runner.run_case import run_case
from evalkit.spec.load import case_from_dict

SCRIPT = {
    "goal": "a repair",
    "facts": {"serial": "SN48213"},
    "opening": "My drill is broken.",
    "script": [
        {"when": {"asks_for": "serial"}, "say": "It says {{ facts.serial }}."},
        {"when": {"agent_says": "ticket"}, "say": "Yes, please."},
    ],
    "stop_when": {"called": "book"},
}
TURNS = [{"user": "My drill is broken."}, {"user": "It says SN48213."}, {"user": "Yes, please."}]


def build_agent(book_at: int) -> Any:
    def desk(task: evalkit.Task) -> str:
        turn = len([message for message in task.messages if message["role"] == "user"]) - 1
        if turn == book_at:
            task.call("book")
        if turn == 1:
            task.call("check")
        return ("What is the serial?", "Shall I open a ticket?", "Done.")[turn]

    return desk


def build_case(root: Path, calls: list[Any], given: dict[str, Any]) -> Any:
    mocks = {"book": {"ticket": 1}, "check": {"status": "valid"}}
    data = {
        "agent": "x",
        "input": {**given, "mock_function_responses": mocks},
        "expected_output": {"expected_function_calls": calls, "call_order": "any"},
    }
    return case_from_dict(data, root / "scenarios/desk_001.yaml", root=root)


def run(root: Path, calls: list[Any], given: dict[str, Any], book_at: int = 2) -> Verdict:
    return run_case(build_case(root, calls, given), build_agent(book_at), Settings(root=root))


ANSWERED = [
    {"function_name": "check", "in_reply_to": "SN48213"},
    {"function_name": "book", "in_reply_to": {"$search": "(?i)^yes"}},
]


@pytest.mark.parametrize("given", [{"user": SCRIPT}, {"turns": TURNS}], ids=["simulated", "turns"])
def test_a_call_belongs_to_the_message_that_the_agent_answered(given: dict[str, Any], tmp_path: Path) -> None:
    assert run(tmp_path, ANSWERED, given).status == "passed"

    early = run(tmp_path, ANSWERED, given, book_at=0)
    (reason,) = early.reasons if "turns" in given else [r for r in early.reasons if r.code == "wrong_user_turn"]
    assert (early.status, reason.code) == ("failed", "wrong_user_turn")
    assert reason.message.startswith(
        'call 1, book: made in reply to the user\'s "My drill is broken.", expected a string'
    )
    assert reason.place == "expected_output.expected_function_calls[1].in_reply_to"
    if "user" in given:
        early_by_one = run(tmp_path, ANSWERED, given, book_at=1)
        assert 'made in reply to the user\'s "It says SN48213."' in early_by_one.summary


def test_it_may_name_a_fact_and_tells_equal_calls_apart(tmp_path: Path) -> None:
    user = {**SCRIPT, "stop_when": {"called": "book"}}
    fact = [{"function_name": "check", "in_reply_to": "{{ input.user.facts.serial }}"}, "book"]
    assert run(tmp_path, fact, {"user": user}).status == "passed"
    assert (
        run(tmp_path, [{"function_name": "check", "in_reply_to": "drill"}, "book"], {"user": user}).status == "failed"
    )


def test_a_case_of_one_message_has_it_for_all_calls(tmp_path: Path) -> None:
    case = build_case(tmp_path, [{"function_name": "book", "in_reply_to": "drill"}], {"message": "My drill is broken."})
    assert run_case(case, build_agent(0), Settings(root=tmp_path)).status == "passed"


def test_where_nobody_knows_what_the_user_said_it_is_not_measured() -> None:
    judged = evalkit.judge({"expected_function_calls": [{"function_name": "f", "in_reply_to": "yes"}]}, [{"name": "f"}])
    assert judged.status != "failed"
    assert [check.status for check in judged.checks if check.check == "in_reply_to"] == ["not_judged"]


@pytest.mark.parametrize("given", [{"user": SCRIPT}, {"turns": TURNS}], ids=["simulated", "turns"])
def test_smoke_which_has_no_user_finds_nothing_wrong(given: dict[str, Any], tmp_path: Path) -> None:
    assert run_smoke_check(build_case(tmp_path, ANSWERED, given)).findings == ()


@pytest.mark.parametrize("value", [5, None, [], "", {"$judge": "agrees"}, ["yes"]])
def test_anything_else_is_refused(value: Any) -> None:
    expected = {"expected_function_calls": [{"function_name": "f", "in_reply_to": value}]}
    assert [problem.path[:3] for problem in compile_expectation(expected)[1]] == [
        ("expected_output", "expected_function_calls", 0)
    ] or value is None
