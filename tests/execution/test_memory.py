"""What a case leaves in memory once its verdict is taken: nothing, at once, without a look of the garbage collector."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from evalkit.execution.executor import Executor, RunRequest
from evalkit.records.settings import Settings
from evalkit.spec.load import case_from_dict


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def sync_agent(task: Any) -> str:
    task.state["kept"] = 1
    return str(task.call("check", id="A1"))


async def async_agent(task: Any) -> str:
    return str(await task.acall("check", id="A1"))


def cases(number: int) -> list[Any]:
    return [
        case_from_dict(
            {
                "scenario_id": f"a_{index:03}",
                "input": {"message": "hello", "mock_function_responses": {"check": {"ok": True}}},
                "expected_output": {"expected_function_calls": [{"function_name": "check", "arguments": {"id": "A1"}}]},
            }
        )
        for index in range(number)
    ]


@pytest.mark.parametrize("concurrency", [1, 4])
@pytest.mark.parametrize("agent", [sync_agent, async_agent])
@pytest.mark.usefixtures("no_collector")
def test_tasks_and_verdicts_are_gone_when_they_are_let_go(agent: Callable[[Any], Any], concurrency: int) -> None:
    seen: list[weakref.ref[Any]] = []

    def watching(task: Any) -> Any:
        seen.append(weakref.ref(task))
        return agent(task)

    executor = Executor(Settings(), concurrency)
    jobs = [RunRequest(case, watching) for case in cases(6)]
    try:
        for index, job in enumerate(jobs):
            assert executor.run(job, jobs[index + 1 :]).passed
        assert [task() for task in seen[:-1]] == [None] * 5  # the last may still be on its way out of the loop
    finally:
        executor.close()
    assert seen[-1]() is None
