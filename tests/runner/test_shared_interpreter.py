"""A case that holds the interpreter or the event loop pays for it itself: its neighbours get the time back."""

from __future__ import annotations

import asyncio
import time

import pytest

import evalkit
from evalkit.agents.clock import Occupancy
from evalkit.agents.task import Task
from evalkit.runner.agent_call import list_task_calls
from evalkit.runner.run_case import PATIENCE_S

DEADLINE_S = 0.5
_LOOPS = 10_000_000  # of one call in C, which keeps the interpreter to itself


def hold_interpreter() -> None:
    # Of processor time, since the machine may be busy; longer than the patience with an agent that is about to end.
    until = time.thread_time() + 2 * DEADLINE_S + PATIENCE_S
    while time.thread_time() < until:
        sum(range(_LOOPS))


async def neighbour(task: Task) -> str:
    for _ in range(4):
        await asyncio.sleep(DEADLINE_S / 8)
    return "hello"


def sync_culprit(task: Task) -> str:
    time.sleep(0.1)
    hold_interpreter()
    return "hello"


async def thread_culprit(task: Task) -> str:
    await asyncio.sleep(0.1)
    await asyncio.to_thread(hold_interpreter)
    return "hello"


async def loop_culprit(task: Task) -> str:
    await asyncio.sleep(0.1)
    hold_interpreter()
    await asyncio.sleep(0.1)
    return "hello"


async def sleeping_culprit(task: Task) -> str:
    await asyncio.sleep(0.1)
    time.sleep(3 * DEADLINE_S)  # noqa: ASYNC251 - the point of it
    await asyncio.sleep(0.1)
    return "hello"


@pytest.mark.parametrize("culprit", [sync_culprit, thread_culprit, loop_culprit, sleeping_culprit])
def test_who_holds_the_interpreter_misses_the_deadline_and_nobody_else(culprit: object) -> None:
    case = evalkit.case_from_dict(
        {
            "description": "a greeting",
            "input": {"message": "hi"},
            "settings": {"deadline_s": DEADLINE_S},
            "expected_output": {"response_contains": ["hello"]},
        }
    )

    async def run_all() -> list[evalkit.Verdict]:
        agents = [culprit, *[neighbour] * 5]
        return list(await asyncio.gather(*(evalkit.arun_case(case, agent=agent) for agent in agents)))

    first, *others = asyncio.run(run_all())

    assert [verdict.status for verdict in others] == ["passed"] * 5
    assert (first.status, first.reasons[0].code) == ("failed", "deadline")


def test_steps_are_awaited_as_they_are() -> None:
    """Values, exceptions and cancellation go through, and the calls of an agent that hangs are found."""
    occupancy = Occupancy(lambda seconds: None)

    async def inner(value: int) -> int:
        try:
            await asyncio.sleep(0)
            await asyncio.sleep(3600 if value < 0 else 0)
        except asyncio.CancelledError:
            return -1
        if value == 0:
            raise LookupError("nothing")
        time.sleep(0.05)  # noqa: ASYNC251 - the point of it
        return value

    async def outer(value: int) -> int:
        return await occupancy.measure_steps(inner(value))

    async def run() -> tuple[int, str, int]:
        hanging = asyncio.create_task(outer(-1))
        await asyncio.sleep(0.01)
        calls = [call.name for call in list_task_calls(hanging)]
        assert calls[:3] == ["outer", "measure_steps", "inner"]
        hanging.cancel()
        with pytest.raises(LookupError):
            await outer(0)
        return await outer(7), calls[-1], await hanging

    assert asyncio.run(run()) == (7, "sleep", -1)
    assert 0.05 <= occupancy.take() < 0.5
    assert occupancy.take() == 0
