"""Whoever asks a model, and however: what it took is booked once, cached and reasoning tokens at their prices."""

from __future__ import annotations

import json
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from evalkit.agents.task import Task
from evalkit.errors import BudgetSpentError
from evalkit.models.providers.budget import Account, RunBudget
from evalkit.records.prices import PriceList
from evalkit.records.settings import Settings
from evalkit.records.transcript import ModelRequest, ModelTurn, Usage
from evalkit.records.verdict import Verdict
from evalkit.runner.run_case import run_case
from evalkit.spec.load import case_from_dict
from tests.servers.replay import Answer, ReplayServer

# (1000 - 400) x 1 + 400 x 0.5 + (150 - 50) x 10 + 50 x 20, in USD per million tokens
COST = 0.0028
PRICES: Any = {"m": {"input": 1.0, "cached": 0.5, "output": 10.0, "reasoning": 20.0}}
USAGE = {"prompt_tokens": 1000, "prompt_tokens_details": {"cached_tokens": 400}, "completion_tokens": 150,
         "completion_tokens_details": {"reasoning_tokens": 50}, "total_tokens": 1150}  # fmt: skip
GRADES = json.dumps({"grades": [{"criterion": 1, "pass": True, "reason": "It is."}]})


class Service(ReplayServer):
    """Chat completions, whole and streamed. A grader's function is called; everybody else gets a text."""

    usage: Any = USAGE

    def reply(self, path: str, body: bytes, headers: dict[str, str]) -> Answer:
        super().reply(path, body, headers)
        asked = json.loads(body)
        message: dict[str, Any] = {"role": "assistant", "content": "done"}
        if asked.get("tools"):
            call = {"id": "c1", "type": "function", "function": {"name": "grade", "arguments": GRADES}}
            message = {"role": "assistant", "content": None, "tool_calls": [call]}
        whole = {"id": "x", "model": "m", "usage": self.usage}
        if not asked.get("stream"):
            end = {"index": 0, "message": message, "finish_reason": "stop"}
            return Answer(json.dumps({**whole, "object": "chat.completion", "choices": [end]}))
        chunks = [{**whole, "usage": None, "choices": [{"index": 0, "delta": message, "finish_reason": "stop"}]},
                  *([{**whole, "choices": []}] if self.usage else [])]  # fmt: skip
        lines = (f"data: {json.dumps({**chunk, 'object': 'chat.completion.chunk'})}\n\n" for chunk in chunks)
        return Answer("".join(lines) + "data: [DONE]\n\n", content_type="text/event-stream")


@pytest.fixture
def service() -> Iterator[Service]:
    server = Service()
    yield server
    server.close()


class Run:
    """Runs a case under an account, whose sum is `spent`."""

    def __init__(self, root: Path, service: Service, cap: float = 1.0) -> None:
        self.account = Account(cap)
        self.model = f"openai:m?base_url={service.url}/v1&retries=0"
        self._root = root

    def __call__(self, agent: object, *, input: Any = None, expected: Any = None, **settings: Any) -> Verdict:
        data = {"input": input or {"message": "Hi."}, "expected_output": expected or {"response_contains": "done"}}
        case = case_from_dict(data, self._root / "scenarios" / "case_001.yaml", root=self._root)
        in_force = Settings(
            root=self._root, prices=PRICES, max_cost_usd=1.0, extra={"account": self.account}, **settings
        )
        return run_case(case, agent, settings=in_force)

    @property
    def spent(self) -> float:
        return self.account._spent


@pytest.fixture
def run(tmp_path: Path, service: Service, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("OPENAI_BASE_URL", f"{service.url}/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    return Run(tmp_path, service)


async def ask_task(task: Task) -> str:
    return (await task.turn(ModelRequest(messages=tuple(task.messages)))).text


def ask_itself(*, stream: bool = False) -> Callable[[Task], str]:
    """An agent with a client of its own."""

    def agent(task: Task) -> str:
        import os

        body: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Hi."}], "stream": stream}
        url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
        request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
        with urllib.request.urlopen(request) as response:
            response.read()
        return "done"

    return agent


PROGRAM = """
import json, os, urllib.request
body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "Hi."}]}).encode()
url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
with urllib.request.urlopen(urllib.request.Request(url, body, {"content-type": "application/json"})) as response:
    print(json.load(response)["choices"][0]["message"]["content"])
"""


@pytest.mark.parametrize("stream", ["", "&stream=0", "&stream=1"])
def test_the_loops_model_is_booked(run: Run, stream: str) -> None:
    assert run(ask_task, model=run.model + stream).status == "passed"

    assert run.spent == pytest.approx(COST)


def test_a_grader_is_booked(run: Run) -> None:
    verdict = run(lambda task: "done", expected={"judge": ["It is polite."]}, grader=run.model)

    assert verdict.status == "passed"
    assert run.spent == pytest.approx(COST)


def test_a_simulated_user_is_booked(run: Run, service: Service) -> None:
    user = {"goal": "Say hello", "opening": "Hello.", "max_turns": 3}
    run(lambda task: "done", input={"user": user}, simulator=run.model)

    assert len(service.received) > 1
    assert run.spent == pytest.approx(COST * len(service.received))


@pytest.mark.parametrize("settings", [{"model": "own"}, {"record": "all"}], ids=["live", "recorded"])
@pytest.mark.parametrize("stream", [False, True])
def test_a_client_of_an_agents_own_is_booked(run: Run, settings: Any, stream: bool) -> None:
    assert run(ask_itself(stream=stream), **settings).status == "passed"

    assert run.spent == pytest.approx(COST)


def test_what_is_played_is_not_booked(run: Run) -> None:
    run(ask_itself(), record="all")
    assert run(ask_itself()).status == "passed"

    assert run.spent == pytest.approx(COST)


@pytest.mark.parametrize("settings", [{"model": "own"}, {"record": "all"}], ids=["live", "recorded"])
def test_a_program_is_booked(run: Run, settings: Any) -> None:
    verdict = run({"command": [sys.executable, "-c", PROGRAM]}, **settings)

    assert verdict.status == "passed"
    assert run.spent == pytest.approx(COST)


@pytest.mark.parametrize(
    ("usage", "prices", "says"),
    [
        (None, PRICES, "a reply of 'm' came without its tokens"),
        (USAGE, {}, "'m' has no price"),
    ],
)
def test_a_client_whose_cost_is_unknown_is_not_asked_again(
    run: Run, service: Service, monkeypatch: pytest.MonkeyPatch, usage: Any, prices: Any, says: str
) -> None:
    service.usage = usage
    monkeypatch.setitem(globals(), "PRICES", prices)
    ask = ask_itself(stream=True)

    def twice(task: Task) -> str:
        ask(task)
        return ask(task)

    verdict = run(twice, model="own")

    assert (verdict.status, len(service.received)) == ("not_run", 1)
    assert verdict.reasons[0].message.startswith(f"the budget of 1 USD (max_cost) can't be kept: {says}")


def test_a_stream_that_its_client_left_closes_no_budget() -> None:
    account = Account(1.0)
    RunBudget(account, None, PriceList(table=PRICES)).add(ModelTurn(text="do", finish_reason="truncated"), "own")

    account.check()
    RunBudget(account, None, PriceList(table=PRICES)).add(ModelTurn(text="done", usage=Usage(input_tokens=1)), "own")
    with pytest.raises(BudgetSpentError, match="'own' has no price"):
        account.check()
