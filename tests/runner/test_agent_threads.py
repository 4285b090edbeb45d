"""The default executor of loops that run agents: no case waits for another one's threads, and no thread for the end."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from typing import Any

import pytest

from evalkit import run_case
from evalkit.runner.agent_threads import THREADS_PER_CASE, LoopPool
from evalkit.spec.load import case_from_dict


def test_a_case_has_as_many_threads_as_in_a_loop_of_its_own_and_the_rest_waits_its_turn() -> None:
    pool, gate, going = LoopPool(2), threading.Event(), threading.Semaphore(0)

    def work(number: int) -> int:
        going.release()
        gate.wait(20)
        return number

    futures = [pool.submit(work, number) for number in range(2 * THREADS_PER_CASE + 3)]
    assert all(going.acquire(timeout=20) for _ in range(2 * THREADS_PER_CASE))
    assert not going.acquire(timeout=0.05)
    gate.set()
    assert [future.result(20) for future in futures] == list(range(2 * THREADS_PER_CASE + 3))


def test_what_raises_tells_whoever_waits_and_what_is_cancelled_does_not_begin() -> None:
    pool, gate = LoopPool(1), threading.Event()
    ran: list[int] = []
    busy = [pool.submit(gate.wait, 20) for _ in range(THREADS_PER_CASE)]
    waiting, cancelled = pool.submit(divmod, 1, 0), pool.submit(ran.append, 1)
    cancelled.cancel()
    gate.set()
    with pytest.raises(ZeroDivisionError):
        waiting.result(20)
    assert all(future.result(20) for future in busy)
    assert (pool.submit(int, "5").result(20), ran) == (5, [])


def test_shutting_down_waits_for_nobody_and_cancels_what_has_not_begun() -> None:
    pool, gate = LoopPool(1), threading.Event()
    busy = [pool.submit(gate.wait, 20) for _ in range(THREADS_PER_CASE)]
    queued = pool.submit(int)
    pool.shutdown()
    assert queued.cancelled()
    assert not busy[0].done()
    gate.set()


def test_it_is_the_default_executor_of_an_agent_s_loop() -> None:
    async def agent(task: Any) -> str:
        loop = asyncio.get_running_loop()
        return f"{await asyncio.to_thread(lambda: 'to thread')}, {await loop.run_in_executor(None, str, 'in executor')}"

    case = case_from_dict({"input": {"message": "x"}, "expected_output": {"response_contains": "to thread, in exec"}})
    assert run_case(case, agent).passed


ENDLESS = """\
import asyncio, time
import evalkit

async def agent(task):
    await asyncio.to_thread(time.sleep, 600)

case = evalkit.case_from_dict({
    "input": {"message": "x"}, "expected_output": {"response_contains": "y"}, "settings": {"deadline_s": 0.2},
})
print(evalkit.run_case(case, agent).reasons[0].code)
"""


def test_a_thread_that_an_agent_left_waiting_does_not_keep_the_process_alive() -> None:
    done = subprocess.run([sys.executable, "-c", ENDLESS], capture_output=True, text=True, timeout=300, check=False)
    assert (done.stdout, done.returncode) == ("deadline\n", 0), done.stderr


ASKED_FOR_A_LOOP = """
import asyncio, gc
from evalkit.runner.agent_threads import offer_event_loop

with offer_event_loop():
    pass
asyncio.run(asyncio.sleep(0))
gc.collect()
"""


def test_the_loop_that_asyncio_makes_for_the_main_thread_is_closed_in_the_end() -> None:
    command = [sys.executable, "-W", "always", "-c", ASKED_FOR_A_LOOP]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stderr == ""
