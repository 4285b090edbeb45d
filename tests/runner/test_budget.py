"""The spend cap: what is left when it is reached, in a loop, between runs, over many cases and processes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from evalkit.agents.contract import Reply
from evalkit.agents.instruction import Instruction
from evalkit.agents.model_choice import _shared_providers
from evalkit.agents.task import Task
from evalkit.errors import BudgetSpentError, ProviderError, UsageError
from evalkit.gate.decision import decide
from evalkit.models.providers.budget import Account, RunBudget
from evalkit.models.providers.pacing import RetryPolicy, call_with_retries, queue_context
from evalkit.records.case import Case, Declaration, Repeat
from evalkit.records.prices import PriceList
from evalkit.records.run import Policy, Run
from evalkit.records.settings import Settings
from evalkit.records.transcript import ModelCall, ModelRequest, ModelTurn, Usage
from evalkit.runner.run_case import arun_case, run_case

PRICES = {"x": {"input": 1.0, "output": 10.0}}
LOOP = Instruction(name="desk", body="Go on.", available_functions=(Declaration(name="check"),))
_caps = count(1)


class Live:
    """A model that calls `check` for ever; each turn costs a cent."""

    name = "live"
    usage: Usage | None = Usage(input_tokens=10_000, total_tokens=10_000)

    def __init__(self) -> None:
        self.asked = 0

    async def turn(self, request: ModelRequest) -> ModelTurn:
        self.asked += 1
        await asyncio.sleep(0)
        return ModelTurn(calls=(ModelCall(name="check"),), finish_reason="tool_calls", usage=self.usage)

    async def aclose(self) -> None: ...


@pytest.fixture
def live() -> Iterator[Live]:
    service = Live()
    _shared_providers["gemini:x"] = service
    yield service
    del _shared_providers["gemini:x"]


@pytest.fixture
def settings(tmp_path: Path) -> Callable[..., Settings]:
    def make(cents: float, **more: Any) -> Settings:
        cap = cents / 100 + next(_caps) * 1e-9  # an account of its own for each test
        options: dict[str, Any] = {"root": tmp_path, "model": "gemini:x", "prices": PRICES, **more}
        return Settings(max_cost_usd=cap, **options)

    return make


def case(number: int = 1, **more: Any) -> Case:
    data = {"message": "hi", "mock_function_responses": {"check": 1}}
    expected = {"stop_reason": "max_iterations"}
    return Case(id=f"scenarios/s/case_{number:03}.yaml", input=data, expected_output=expected, **more)


async def loops(task: Task) -> Any:
    return await task.run_instruction(LOOP)


async def asks_once(task: Task) -> Any:
    await task.turn(ModelRequest(messages=tuple(task.messages)))
    return Reply("done", stop_reason="max_iterations")


def test_a_running_loop_stops_with_budget_and_the_case_is_not_run(live: Live, settings: Any) -> None:
    verdict = run_case(case(), loops, settings(3))

    assert (verdict.status, verdict.transcript.stop_reason, live.asked) == ("not_run", "budget", 4)
    assert verdict.reasons[0].code == "budget"
    assert verdict.reasons[0].message == "the budget of 0.03 USD (max_cost) is spent: 0.04 USD"
    assert len(verdict.transcript.calls) == 4
    assert verdict.transcript.cost_usd == pytest.approx(0.04)


def test_what_comes_after_is_not_run_and_the_gate_is_not_met(live: Live, settings: Any) -> None:
    in_force = settings(2)
    verdicts = [run_case(case(number), asks_once, in_force) for number in range(1, 6)]
    run = Run(verdicts=tuple(verdicts), selected=tuple(verdict.case_id for verdict in verdicts))
    decision = decide(run, Policy())

    assert [verdict.status for verdict in verdicts] == ["passed"] * 3 + ["not_run"] * 2
    assert live.asked == 3
    assert (decision.status, decision.exit_status) == ("not_measured", 6)


def test_cases_that_overlap_overshoot_by_little(live: Live, settings: Any) -> None:
    in_force = settings(10)

    async def all_of_them() -> list[str]:
        verdicts = await asyncio.gather(*(arun_case(case(number), asks_once, in_force) for number in range(40)))
        return [verdict.status for verdict in verdicts]

    first = run_case(case(99), asks_once, in_force)
    statuses = asyncio.run(all_of_them())

    assert first.status == "passed"
    assert set(statuses) == {"passed", "not_run"}
    assert live.asked <= 12


def test_requests_that_wait_for_a_place_are_not_sent_once_the_budget_is_spent(settings: Any) -> None:
    class FewPlaces(Live):
        async def turn(self, request: ModelRequest) -> ModelTurn:
            return await call_with_retries(lambda: self.reply(request), RetryPolicy())

        async def reply(self, request: ModelRequest) -> ModelTurn:
            await asyncio.sleep(0.02)
            return await Live.turn(self, request)

    model = "ollama:x?base_url=http://127.0.0.1:9"
    service = _shared_providers[model] = FewPlaces()
    in_force = settings(1, model=model)

    async def all_of_them() -> list[str]:
        verdicts = await asyncio.gather(*(arun_case(case(number), asks_once, in_force) for number in range(12)))
        return [verdict.status for verdict in verdicts]

    statuses = asyncio.run(all_of_them())
    del _shared_providers[model]

    assert set(statuses) == {"passed", "not_run"}
    assert service.asked <= 4


def test_repeats_that_were_not_made_leave_the_case_not_run(live: Live, settings: Any) -> None:
    some = run_case(case(repeat=Repeat(runs=5, min_pass=5)), asks_once, settings(2))
    enough = run_case(case(repeat=Repeat(runs=5, min_pass=2)), asks_once, settings(2))

    assert (some.status, [run.status for run in some.runs]) == ("not_run", ["passed"] * 3 + ["not_run"])
    assert some.summary == "3/4 runs passed (1 not measured), 5 needed"
    assert enough.status == "passed"


def test_recorded_turns_cost_nothing(live: Live, settings: Any, tmp_path: Path) -> None:
    in_force = settings(100)
    run_case(case(), loops, replace(in_force, record="all"))
    asked = live.asked
    spent = replace(settings(0), model=None)

    assert run_case(case(), loops, spent).status == "passed"
    assert live.asked == asked


def test_an_unknown_price_cannot_keep_a_budget(live: Live, settings: Any) -> None:
    with pytest.raises(UsageError) as caught:
        run_case(case(), loops, settings(3, prices={}))

    assert live.asked == 0
    assert str(caught.value).startswith(
        "max_cost is set, and 'x' has no price: write [tool.evalkit.prices] "
        '"x" = {input = ..., output = ...}, in USD per million tokens'
    )


def test_a_service_that_reports_no_tokens_is_asked_once(live: Live, settings: Any) -> None:
    live.usage = None
    verdict = run_case(case(), loops, settings(3))

    assert (verdict.status, live.asked) == ("not_run", 1)
    assert verdict.reasons[0].message == (
        "the budget of 0.03 USD (max_cost) can't be kept: a reply of 'gemini:x' came without its tokens; of a stream, "
        'OpenAI\'s clients ask for them by stream_options={"include_usage": True}'
    )


def test_an_agent_that_swallows_the_refusal_is_not_run_all_the_same(live: Live, settings: Any) -> None:
    async def stubborn(task: Task) -> str:
        for _ in range(10):
            try:
                await task.turn(ModelRequest(messages=tuple(task.messages)))
            except BudgetSpentError:
                return "never mind"
        return ""

    assert run_case(case(), stubborn, settings(2)).status == "not_run"


def test_processes_share_an_account_over_a_file(tmp_path: Path) -> None:
    file = tmp_path / ".evalkit/spent.txt"
    one, other = Account(1.0, file), Account(1.0, file)
    one.enter()
    one.leave(0.75)
    other.add(0.5)

    assert (one._compute_total(), other._compute_total()) == (1.25, 1.25)
    with pytest.raises(BudgetSpentError, match=r"the budget of 1 USD \(max_cost\) is spent: 1.25 USD"):
        other.enter()


def test_a_request_that_failed_costs_nothing() -> None:
    account = Account(1.0)
    account.enter()
    account.leave(None)

    assert account._compute_total() == 0


def test_the_deadline_stands_still_while_a_case_waits_for_its_turn(settings: Any, tmp_path: Path) -> None:
    from evalkit.records.case import CaseSettings

    class Queueing(Live):
        async def turn(self, request: ModelRequest) -> ModelTurn:
            with queue_context.get()():
                await asyncio.sleep(0.3)
            return ModelTurn(text="done")

    class Slow(Live):
        async def turn(self, request: ModelRequest) -> ModelTurn:
            await asyncio.sleep(5)
            raise ProviderError("never")

    def sync_agent(task: Task) -> Any:
        return task.wait(asks_once(task))

    short = case(settings=CaseSettings(deadline_s=0.1))
    in_force = Settings(root=tmp_path, model="gemini:x")
    for agent in (asks_once, sync_agent):
        _shared_providers["gemini:x"] = Queueing()
        assert run_case(short, agent, in_force).status == "passed"
        _shared_providers["gemini:x"] = Slow()
        assert run_case(short, agent, in_force).reasons[0].code == "provider_error"
    del _shared_providers["gemini:x"]


def test_a_cap_of_tokens_leaves_the_rest_not_run(live: Live, tmp_path: Path) -> None:
    """Without any price; each turn takes 10,000."""
    in_force = Settings(root=tmp_path, model="gemini:x", max_tokens=20_000 + next(_caps))
    verdicts = [run_case(case(number), asks_once, in_force) for number in range(1, 6)]

    assert [verdict.status for verdict in verdicts] == ["passed"] * 3 + ["not_run"] * 2
    assert live.asked == 3
    assert verdicts[-1].reasons[0].code == "budget"
    cap = f"{in_force.max_tokens:,}"
    assert verdicts[-1].reasons[0].message == f"the budget of {cap} tokens (max_tokens) is spent: 30,000 tokens"


def test_of_two_caps_the_first_that_is_spent_counts(live: Live, settings: Any) -> None:
    in_force = settings(1, max_tokens=1_000_000 + next(_caps))
    verdicts = [run_case(case(number), asks_once, in_force) for number in range(4)]
    assert [verdict.status for verdict in verdicts] == ["passed"] * 2 + ["not_run"] * 2
    assert "(max_cost)" in verdicts[-1].reasons[0].message


def test_tokens_that_a_service_does_not_report_can_not_be_capped(
    live: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Live, "usage", None)
    in_force = Settings(root=tmp_path, model="gemini:x", max_tokens=20_000 + next(_caps))
    run_case(case(), asks_once, in_force)
    message = run_case(case(), asks_once, in_force).reasons[0].message
    cap = f"{in_force.max_tokens:,}"
    assert message.startswith(f"the budget of {cap} tokens (max_tokens) can't be kept: a reply of 'gemini:x' came ")


def test_a_request_that_one_cap_refuses_is_under_way_for_no_other(tmp_path: Path) -> None:
    costs, tokens = Account(1.0), Account(10, unit="tokens", option="max_tokens")
    tokens.add(10)
    budget = RunBudget(costs, tokens, PriceList(table=PRICES))
    with pytest.raises(BudgetSpentError):
        budget.enter("gemini:x")
    costs.enter()
    costs.leave(0.5)
    costs.check()
    assert costs._under_way == 0
