"""Fifty cases at a time in one process, each with its own cassette: no answer reaches another case."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evalkit.agents.registry import agent as registered
from evalkit.agents.task import Task
from evalkit.errors import MissingCassetteError
from evalkit.models.cassettes.http.interception import bypass_interception
from evalkit.records.case import Case
from evalkit.records.registry import AGENTS
from evalkit.records.settings import Settings
from evalkit.records.verdict import Verdict
from evalkit.runner.run_case import arun_case

CASES = 50
MakeCase = Callable[..., Case]


def all_of(cases: list[Case], agent: Any, settings: Settings) -> list[Verdict]:
    async def together() -> list[Verdict]:
        return await asyncio.gather(*(arun_case(case, agent, settings) for case in cases))

    return asyncio.run(together())


@pytest.fixture
def cases(make_case: MakeCase) -> list[Case]:
    return [make_case(f"message {number}", f"case_{number:03}") for number in range(CASES)]


def several_times(client: Any) -> Any:
    """An agent that asks three times, so that the cases are sure to overlap."""

    def sync_agent(task: Task) -> str:
        return [str(client(task)) for _ in range(3)][-1]

    async def async_agent(task: Task) -> str:
        answers = await asyncio.gather(*(client(task) for _ in range(3)))
        return str(answers[-1])

    return async_agent if asyncio.iscoroutinefunction(client) else sync_agent


@pytest.fixture
def in_threads() -> Any:
    """Sync agents run beside each other only when they are registered with `threads`."""

    def register(agent: Any) -> str:
        registered("fifty", threads=CASES)(agent)
        return "fifty"

    yield register
    AGENTS.remove("fifty")


@pytest.mark.parametrize("client", ["requests", "urllib", "httpx", "async_httpx", "async_httpx2", "aiohttp"])
def test_fifty_cases_at_a_time_get_their_own_answers(
    client: str, clients: Any, echo: Any, cases: list[Case], tmp_path: Path, in_threads: Any
) -> None:
    agent: Any = several_times(clients[client])
    agent = agent if asyncio.iscoroutinefunction(agent) else in_threads(agent)
    recorded = all_of(cases, agent, Settings(root=tmp_path, record="all"))
    asked = len(echo.received)
    echo.close()
    replayed = all_of(cases, agent, Settings(root=tmp_path))

    assert [v.reasons for v in recorded if v.status != "passed"] == []
    assert [verdict.status for verdict in replayed] == ["passed"] * CASES
    assert (asked, len(echo.received)) == (3 * CASES, 3 * CASES)
    for number in range(CASES):
        text = (tmp_path / f"mocks/cassettes/scenarios/s/case_{number:03}.http.yaml").read_text()
        assert text.count(f"content: message {number}\n") == 3


def test_one_client_for_all_cases_gives_each_its_own_answers(
    echo: Any, cases: list[Case], tmp_path: Path, in_threads: Any
) -> None:
    """As in production: a session at module level, whose kept-alive connections pass from case to case, read whole and
    in pieces."""
    import requests

    session = requests.Session()

    def agent(task: Task) -> str:
        body = {"messages": [{"role": "user", "content": task.message}]}
        with session.post(f"{echo.url}/v1/chat/completions", json=body, timeout=5, stream=True) as response:
            answer = json.loads(b"".join(response.iter_content(7)))
        return str(answer["choices"][0]["message"]["content"])

    recorded = all_of(cases, in_threads(agent), Settings(root=tmp_path, record="all"))
    replayed = all_of(cases, "fifty", Settings(root=tmp_path))

    assert {verdict.status for verdict in [*recorded, *replayed]} == {"passed"}
    assert len(echo.received) == CASES


def test_a_case_that_lacks_a_recording_does_not_disturb_its_neighbours(
    clients: Any, cases: list[Case], tmp_path: Path
) -> None:
    agent = clients["async_httpx"]
    all_of(cases[1:], agent, Settings(root=tmp_path, record="all"))

    verdicts = all_of(cases, agent, Settings(root=tmp_path))

    assert verdicts[0].reasons[0].code == "missing_cassette"
    assert {verdict.status for verdict in verdicts[1:]} == {"passed"}


def test_a_request_that_may_be_any_cases_is_refused_and_blames_nobody(
    clients: Any, echo: Any, make_case: MakeCase, tmp_path: Path
) -> None:
    """From a thread that was there before two running cases."""
    errors: list[BaseException] = []
    both_run, done = threading.Barrier(2), threading.Event()

    def stray() -> None:
        import requests

        both_run.wait(5)
        try:
            requests.post(f"{echo.url}/v1", json={}, timeout=5)
        except MissingCassetteError as error:
            errors.append(error)
        done.set()

    threading.Thread(target=stray, daemon=True, name="telemetry").start()

    async def agent(task: Task) -> str:
        if task.message == "first":
            await asyncio.to_thread(both_run.wait, 5)
        await asyncio.to_thread(done.wait, 5)
        return f"re: {task.message}"

    pair = [make_case("first", "case_001"), make_case("second", "case_002")]
    verdicts = all_of(pair, agent, Settings(root=tmp_path))

    assert [verdict.status for verdict in verdicts] == ["passed", "passed"]
    assert str(errors[0]) == (
        "an HTTP request came from thread 'telemetry', which was there before the 2 cases that run, so its case "
        "is unknown: tie what runs there to its case with evalkit.bind(function), or run one case at a time "
        "(--evalkit-concurrency 1)"
    )
    assert echo.received == []


def test_evalkits_own_requests_pass(clients: Any, echo: Any, make_case: MakeCase, tmp_path: Path) -> None:
    """A live provider, beside an agent whose own requests are caught."""

    async def agent(task: Task) -> str:
        with bypass_interception():
            return str(await clients["async_httpx"](task))

    (verdict,) = all_of([make_case()], agent, Settings(root=tmp_path))

    assert verdict.status == "passed"
    assert len(echo.received) == 1
