"""The executor: verdicts in the order they are asked for, whatever runs meanwhile, and none without an end."""

from __future__ import annotations

import asyncio
import gc
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import Context
from typing import Any

import pytest
from msgspec.structs import replace

import evalkit
from evalkit.agents import offline
from evalkit.execution import executor as executor_module
from evalkit.execution.executor import Executor, RunRequest, ScheduledRun
from evalkit.records.settings import Settings
from evalkit.spec.load import case_from_dict


def case(name: str, deadline_s: float = 60.0) -> evalkit.Case:
    """A case that wants the response to be its own name."""
    data = {
        "scenario_id": name,
        "agent": "unused",
        "input": {"message": name},
        "expected_output": {"response_contains": name},
        "settings": {"deadline_s": deadline_s},
    }
    return case_from_dict(data)


def jobs(agent: Callable[..., Any], number: int, **settings: float) -> list[RunRequest]:
    return [RunRequest(case(f"case_{place:03}", **settings), agent) for place in range(number)]


def jobs_with_a_short_one(agent: Callable[..., Any], number: int, short: int) -> list[RunRequest]:
    """Only the case that hangs has a short deadline: the others may take any time on a busy machine."""
    all_jobs = jobs(agent, number)
    all_jobs[short] = RunRequest(case(f"case_{short:03}", deadline_s=0.2), agent)
    return all_jobs


def run_all(executor: Executor, all_jobs: list[RunRequest]) -> list[str]:
    """Statuses, each asked for in turn with all later ones announced."""
    return [executor.run(job, all_jobs[place + 1 :]).status for place, job in enumerate(all_jobs)]


@pytest.fixture
def made() -> Iterator[Callable[[int], Executor]]:
    executors: list[Executor] = []

    def make(concurrency: int) -> Executor:
        executors.append(Executor(Settings(), concurrency))
        return executors[-1]

    yield make
    for executor in executors:
        executor.close()


class Counter:
    """Counts how many agents run at the same time. Async ones wait until there were `awaited`."""

    def __init__(self, awaited: int = 0) -> None:
        self.awaited = awaited
        self.reached = asyncio.Event()
        self.running = 0
        self.most = 0
        self.started: list[str] = []

    def enter(self, name: str) -> None:
        self.started.append(name)
        self.running += 1
        self.most = max(self.most, self.running)

    async def agent(self, task: evalkit.Task) -> str:
        self.enter(task.message)
        await asyncio.sleep(0.02)
        if self.most >= self.awaited:
            self.reached.set()
        async with asyncio.timeout(30):
            await self.reached.wait()
        self.running -= 1
        return task.message

    def blocking(self, task: evalkit.Task) -> str:
        self.enter(task.message)
        time.sleep(0.02)
        self.running -= 1
        return task.message


@pytest.mark.parametrize(("concurrency", "most"), [(1, 1), (4, 4), (50, 12)])
def test_so_many_async_agents_overlap_as_allowed(made: Callable[[int], Executor], concurrency: int, most: int) -> None:
    counter = Counter(awaited=most)
    assert run_all(made(concurrency), jobs(counter.agent, 12)) == ["passed"] * 12
    assert counter.most == most
    assert counter.started == [f"case_{place:03}" for place in range(12)]


def test_sync_agents_run_one_at_a_time(made: Callable[[int], Executor]) -> None:
    counter = Counter()
    assert run_all(made(50), jobs(counter.blocking, 6)) == ["passed"] * 6
    assert counter.most == 1


def test_with_a_concurrency_of_one_nothing_runs_that_was_not_asked_for(made: Callable[[int], Executor]) -> None:
    counter = Counter()
    all_jobs = jobs(counter.agent, 3)
    executor = made(1)
    assert executor.window == 0
    executor.run(all_jobs[0])
    time.sleep(0.05)
    assert counter.started == ["case_000"]


def test_a_slow_case_does_not_hold_up_the_others(made: Callable[[int], Executor]) -> None:
    finished: list[str] = []

    others_finished = asyncio.Event()

    async def agent(task: evalkit.Task) -> str:
        if task.message == "case_000":
            async with asyncio.timeout(30):
                await others_finished.wait()
        finished.append(task.message)
        if len(finished) == 8:
            others_finished.set()
        return task.message

    assert run_all(made(2), jobs(agent, 9)) == ["passed"] * 9
    assert finished[-1] == "case_000"


def test_verdicts_do_not_depend_on_the_concurrency(made: Callable[[int], Executor]) -> None:
    async def agent(task: evalkit.Task) -> str:
        place = int(task.message[-3:])
        await asyncio.sleep(0.001 * (7 - place % 7))
        if place % 5 == 0:
            raise RuntimeError(task.message)
        return task.message if place % 3 else "something else"

    def seen(concurrency: int) -> list[tuple[str, str, tuple[str, ...]]]:
        all_jobs = jobs(agent, 20)
        executor = made(concurrency)
        verdicts = [executor.run(job, all_jobs[place + 1 :]) for place, job in enumerate(all_jobs)]
        return [(v.case_id, v.status, tuple(reason.message for reason in v.reasons)) for v in verdicts]

    assert seen(1) == seen(3) == seen(50)


def test_an_agent_that_blocks_the_loop_ends_at_its_deadline_and_the_others_run(
    made: Callable[[int], Executor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Async in name only: nothing on its loop can stop it, so the loop is left behind and the others start again."""
    monkeypatch.setattr("evalkit.runner.run_case.PATIENCE_S", 0.1)
    released = threading.Event()
    loops: list[asyncio.AbstractEventLoop] = []
    finished: list[str] = []

    async def agent(task: evalkit.Task) -> str:
        loops.append(asyncio.get_running_loop())
        if task.message == "case_001":
            released.wait(60)
        await asyncio.sleep(0.01)
        finished.append(task.message)
        return task.message

    all_jobs = jobs_with_a_short_one(agent, 4, 1)
    executor = made(4)
    started = time.perf_counter()
    try:
        verdicts = [executor.run(job, all_jobs[place + 1 :]) for place, job in enumerate(all_jobs)]
    finally:
        released.set()
    assert time.perf_counter() - started < 40
    assert [verdict.status for verdict in verdicts] == ["passed", "failed", "passed", "passed"]
    assert verdicts[1].reasons[0].code == "deadline"
    asyncio.run_coroutine_threadsafe(asyncio.sleep(0.1), loops[0]).result(30)
    assert sorted(set(finished) - {"case_001"}) == sorted(name for name in finished if name != "case_001"), "each once"


def test_a_thread_that_hangs_is_left_behind(made: Callable[[int], Executor]) -> None:
    released = threading.Event()

    def agent(task: evalkit.Task) -> str:
        if task.message == "case_000":
            released.wait(60)
        return task.message

    try:
        assert run_all(made(10), jobs_with_a_short_one(agent, 3, 0)) == ["failed", "passed", "passed"]
    finally:
        released.set()


def test_the_time_of_a_case_is_its_own(made: Callable[[int], Executor]) -> None:
    """Without the wait for the agent's earlier cases: with it, all of them take three times as long."""
    all_jobs = jobs(Counter().blocking, 5)
    executor, seconds, started = made(50), [], time.perf_counter()
    for place, job in enumerate(all_jobs):
        executor.run(job, all_jobs[place + 1 :])
        seconds.append(executor.seconds)
    assert min(seconds) > 0.015
    assert sum(seconds) < 1.5 * (time.perf_counter() - started)


def test_keyboard_interrupt_of_an_agent_passes_through(made: Callable[[int], Executor]) -> None:
    async def agent(task: evalkit.Task) -> str:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        made(5).run(jobs(agent, 1)[0])


def test_neighbours_that_block_the_loop_take_nobodys_time(made: Callable[[int], Executor]) -> None:
    """Async agents with blocking clients are common: each takes 3 % of its deadline, all of them 120 %."""

    async def agent(task: evalkit.Task) -> str:
        for _ in range(4):
            time.sleep(0.025)  # noqa: ASYNC251 - the point of it
            await asyncio.sleep(0)
        return task.message

    assert run_all(made(40), jobs(agent, 40, deadline_s=3.3)) == ["passed"] * 40


@contextmanager
def frozen_time() -> Iterator[None]:
    """What freezegun does: other clocks in the place of those that modules have, until the end."""
    clocks = {time.perf_counter: lambda: 1.7e9, time.monotonic: lambda: 1.7e9}
    found = [
        (module, name, value)
        for module in list(sys.modules.values())
        for name, value in list(vars(module).items())
        if value is time.perf_counter or value is time.monotonic
    ]
    for module, name, value in found:
        setattr(module, name, clocks[value])
    try:
        yield
    finally:
        for module, name, value in found:
            setattr(module, name, value)


@pytest.mark.parametrize(
    "runs",
    [
        lambda case, agent, made: made(2).run(RunRequest(case, agent)),
        lambda case, agent, _: evalkit.run_case(case, agent),
    ],
    ids=["executor", "run_case"],
)
@pytest.mark.parametrize(("seconds", "deadline_s", "status"), [(0.02, 20.0, "passed"), (60.0, 0.5, "failed")])
def test_deadlines_hold_where_an_agent_freezes_time(
    made: Callable[[int], Executor],
    runs: Callable[..., evalkit.Verdict],
    seconds: float,
    deadline_s: float,
    status: str,
) -> None:
    async def agent(task: evalkit.Task) -> str:
        with frozen_time():
            await asyncio.sleep(seconds)
        return task.message

    assert runs(case("case_000", deadline_s), agent, made).status == status


def test_what_an_agent_blocks_itself_is_its_own_time(made: Callable[[int], Executor]) -> None:
    async def agent(task: evalkit.Task) -> str:
        while True:
            time.sleep(0.02)  # noqa: ASYNC251 - the point of it
            await asyncio.sleep(0)

    executor, all_jobs = made(3), jobs(agent, 3, deadline_s=0.3)
    verdicts = [executor.run(job, all_jobs) for job in all_jobs]
    assert [verdict.reasons[0].code for verdict in verdicts] == ["deadline"] * 3


@pytest.mark.parametrize("concurrency", [1, 4])
def test_an_agent_that_stops_its_loop_stops_no_case(made: Callable[[int], Executor], concurrency: int) -> None:
    async def agent(task: evalkit.Task) -> str:
        asyncio.get_running_loop().stop()
        await asyncio.sleep(0.01)
        return task.message

    assert run_all(made(concurrency), jobs(agent, 3)) == ["passed"] * 3


@pytest.mark.parametrize("is_done", [True, False])
@pytest.mark.parametrize("concurrency", [1, 4])
def test_a_callback_that_hangs_ends_no_other_case(
    made: Callable[[int], Executor], monkeypatch: pytest.MonkeyPatch, concurrency: int, is_done: bool
) -> None:
    """It belongs to no case, and comes before or after the end of the one that has left it."""
    monkeypatch.setattr(executor_module, "_STUCK_LOOKS", 2)
    ended = threading.Event()

    async def leave_callback(task: evalkit.Task) -> str:
        if task.message == "case_001":
            asyncio.get_running_loop().call_soon(ended.wait, context=Context())
            await asyncio.sleep(0 if is_done else 1)
        return task.message

    statuses = run_all(made(concurrency), jobs(leave_callback, 3))
    ended.set()
    assert statuses[::2] == ["passed"] * 2
    assert is_done or statuses[1] == "error"


def test_an_agent_that_cancels_all_tasks_leaves_no_verdict_of_them_unsaid(made: Callable[[int], Executor]) -> None:
    """The cases that are under way are errors, which say whose tasks these are; those after them go on."""
    begun = threading.Barrier(3)

    async def agent(task: evalkit.Task) -> str:
        if task.message < "case_003":
            await asyncio.to_thread(begun.wait, 30)
        if task.message == "case_001":
            for each in asyncio.all_tasks() - {asyncio.current_task()}:
                each.cancel()
        await asyncio.sleep(0.05)
        return task.message

    executor, requests = made(3), jobs(agent, 5)
    verdicts = [executor.run(requests[0], requests[1:]), *map(executor.run, requests[1:])]
    assert [verdict.status for verdict in verdicts] == ["error"] * 3 + ["passed"] * 2, verdicts
    assert {verdict.reasons[0].code for verdict in verdicts[:3]} == {"not_measured"}
    assert "asyncio.all_tasks() has the tasks of other cases too" in verdicts[0].reasons[0].message


def test_what_interrupts_the_caller_cancels_the_case(
    made: Callable[[int], Executor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A timeout plugin raises in the caller's thread."""
    begun, cancelled = threading.Event(), threading.Event()

    async def agent(task: evalkit.Task) -> str:
        try:
            begun.set()
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return task.message

    def out_of_time(*arguments: object) -> None:
        begun.wait(30)
        raise TimeoutError("the caller's")

    executor = made(5)
    monkeypatch.setattr(Executor, "_replace_blocked_loop", out_of_time)
    monkeypatch.setattr("evalkit.execution.executor._LONGEST_NAP_S", 0.02)
    with pytest.raises(TimeoutError, match="the caller's"):
        executor.run(jobs(agent, 1)[0])
    assert cancelled.wait(30)


@pytest.mark.parametrize("blocks", ["case_000", "case_001"], ids=["it itself", "another"])
def test_what_takes_too_long_is_the_error_of_who_blocks_the_loop(
    made: Callable[[int], Executor], monkeypatch: pytest.MonkeyPatch, blocks: str
) -> None:
    """A timeout plugin knows the test whose turn it is, and that may be waiting for others."""
    blocking, released = threading.Event(), threading.Event()

    async def agent(task: evalkit.Task) -> str:
        if task.message == blocks:
            blocking.set()
            released.wait(60)
        await asyncio.sleep(0.01)
        return task.message

    def out_of_time(*arguments: object) -> None:
        blocking.wait(30)
        pytest.fail("out of time")

    executor, (first, second) = made(2), jobs(agent, 2)
    with monkeypatch.context() as patch:
        patch.setattr(Executor, "_replace_blocked_loop", out_of_time)
        with pytest.raises(pytest.fail.Exception) as raised:
            executor.run(first, [second])
    is_anothers = blocks == second.case.id
    has_moved = executor.move_error_to_blocker(first, raised.value)
    released.set()
    assert has_moved is is_anothers
    if is_anothers:
        assert executor.run(first).status == "passed"
        with pytest.raises(pytest.fail.Exception, match="out of time"):
            executor.run(second)
    else:
        assert executor.run(second).status == "passed"


def test_settle_stops_what_ran_ahead_and_it_can_be_asked_for_again(made: Callable[[int], Executor]) -> None:
    counter = Counter()
    all_jobs = jobs(counter.agent, 3)
    executor = made(3)
    executor.run(all_jobs[0], all_jobs[1:])
    executor.cancel_pending()
    assert executor.run(all_jobs[1]).status == "passed"
    assert counter.started.count("case_001") == 2


def test_the_offline_guard_stays_between_cases_and_each_case_finds_it_whole(
    made: Callable[[int], Executor], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offline, "_runs", {})  # without the agents of other tests that never end
    offline.remove_guard(None)
    real, found = socket.socket.send, []

    def taking_it_out(task: evalkit.Task) -> str:
        found.append(socket.socket.send)
        socket.socket.send = real  # type: ignore[method-assign]
        return task.message

    executor = made(1)
    assert run_all(executor, jobs(taking_it_out, 2)) == ["passed", "passed"]
    assert real not in found
    assert len(set(found)) == 1
    assert executor.run(jobs(Counter().agent, 1)[0]).status == "passed"
    assert socket.socket.send is found[0]
    executor.cancel_pending()  # as before a test that is no case
    assert socket.socket.send is real


def test_an_executor_can_be_used_after_it_was_closed(made: Callable[[int], Executor]) -> None:
    executor = made(2)
    for _ in range(2):
        assert executor.run(jobs(Counter().agent, 1)[0]).status == "passed"
        executor.close()


def test_closing_leaves_no_thread_and_no_task_behind() -> None:
    before = set(threading.enumerate())
    stopped = threading.Event()

    async def agent(task: evalkit.Task) -> str:
        if task.message == "case_000":
            return task.message
        try:
            await asyncio.sleep(20)
        finally:
            stopped.set()
        return task.message

    all_jobs = jobs(agent, 2)
    executor = Executor(Settings(), 2)
    executor.run(all_jobs[0], all_jobs[1:])
    executor.close()
    assert stopped.is_set()
    assert set(threading.enumerate()) <= before


def test_a_defect_of_evalkit_is_an_error_and_not_an_exception(
    made: Callable[[int], Executor], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*arguments: object, **options: object) -> None:
        raise ZeroDivisionError("defect")

    monkeypatch.setattr("evalkit.execution.executor.arun_case", broken)
    verdict = made(1).run(jobs(Counter().agent, 1)[0])
    assert (verdict.status, verdict.reasons[0].code) == ("error", "not_measured")
    assert verdict.reasons[0].message.startswith("evalkit itself failed on this case; please report it:\n")
    assert verdict.reasons[0].message.endswith("ZeroDivisionError: defect")


def test_a_context_of_its_own_reaches_the_agent_and_its_tasks_and_threads(made: Callable[[int], Executor]) -> None:
    import contextvars

    variable = contextvars.ContextVar("variable", default="none")

    async def agent(task: evalkit.Task) -> str:
        inner = asyncio.create_task(asyncio.to_thread(variable.get))
        return f"{task.message} {await inner}"

    executor = made(3)
    responses = []
    for job in jobs(agent, 3):
        context = contextvars.copy_context()
        context.run(variable.set, f"of {job.case.id}")
        responses.append(executor.run(RunRequest(job.case, agent, context)).transcript.response)
    assert responses == [f"case_{place:03} of case_{place:03}" for place in range(3)]


def test_a_case_that_has_its_verdict_is_kept_no_longer(made: Callable[[int], Executor]) -> None:
    def held() -> int:
        gc.collect()
        return sum(
            isinstance(one, ScheduledRun) and one.request.case.id.startswith("let_go") for one in gc.get_objects()
        )

    async def agent(task: Any) -> str:
        return str(task.message)

    executor = made(4)
    ours = [RunRequest(case(f"let_go_{place:03}"), agent) for place in range(30)]
    assert run_all(executor, ours) == ["passed"] * 30
    until = time.monotonic() + 30.0
    while held() and time.monotonic() < until:  # the loop lets go of the last one once it has turned again
        assert run_all(executor, jobs(agent, 1)) == ["passed"]
    assert held() == 0


def test_the_first_cases_run_while_later_ones_are_still_being_made_ready(made: Callable[[int], Executor]) -> None:
    begun = threading.Event()

    async def agent(task: Any) -> str:
        begun.set()
        return str(task.message)

    def ahead() -> Iterator[RunRequest]:
        yield from jobs(agent, 20)[1:]
        assert begun.wait(timeout=30.0)
        yield RunRequest(case("late_001"), agent)

    executor = made(50)
    first, *_ = jobs(agent, 1)
    assert executor.run(first, ahead()).passed
    assert executor.run(RunRequest(case("late_001"), agent)).passed


def test_a_verdict_that_is_there_is_handed_on_before_the_rest_is_cancelled(made: Callable[[int], Executor]) -> None:
    """Also where an interrupt comes while no verdict is waited for: it may be asked for long after, or never."""
    ended = threading.Event()

    async def agent(task: evalkit.Task) -> str:
        return str(task.case_id)

    handed_on: list[str] = []
    first, later = jobs(agent, 2)
    later = replace(later, done=ended, on_verdict=lambda verdict: handed_on.append(verdict.case_id))
    executor = made(2)
    executor.run(first, [later])
    assert ended.wait(30)
    executor.cancel_pending()
    assert handed_on == ["case_001"]
