"""Fifty cases at once in one process, over tasks, threads and executors: nobody sees another's mocks."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evalkit.functions.declarations import parse_declarations
from evalkit.functions.dispatcher import FakeDispatcher
from evalkit.functions.mocks.reader import parse_mocks
from evalkit.functions.patching import patch_functions

CASES = 50

SHOP = """
REACHED = []
def check(who):
    REACHED.append(who)
    return "real"
async def acheck(who):
    REACHED.append(who)
    return "real"
class Client:
    def look_up(self, who):
        REACHED.append(who)
        return "real"
"""

Way = Callable[[Any, str, ThreadPoolExecutor], Awaitable[Any]]


async def directly(shop: Any, who: str, pool: ThreadPoolExecutor) -> Any:
    return shop.check(who)


async def awaited(shop: Any, who: str, pool: ThreadPoolExecutor) -> Any:
    await asyncio.sleep(0)
    return await shop.acheck(who)


async def as_a_task(shop: Any, who: str, pool: ThreadPoolExecutor) -> Any:
    return await asyncio.create_task(shop.acheck(who))


async def to_thread(shop: Any, who: str, pool: ThreadPoolExecutor) -> Any:
    return await asyncio.to_thread(shop.Client().look_up, who)


async def in_the_default_executor(shop: Any, who: str, pool: ThreadPoolExecutor) -> Any:
    return await asyncio.get_running_loop().run_in_executor(None, shop.check, who)


async def in_a_pool_that_all_cases_share(shop: Any, who: str, pool: ThreadPoolExecutor) -> Any:
    return await asyncio.wrap_future(pool.submit(shop.Client().look_up, who))


async def in_a_thread(shop: Any, who: str, pool: ThreadPoolExecutor) -> Any:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(shop.check(who)))
    thread.start()
    await asyncio.sleep(0)
    thread.join()
    return found[0]


async def in_a_loop_of_its_own(shop: Any, who: str, pool: ThreadPoolExecutor) -> Any:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(asyncio.run(shop.acheck(who))))
    thread.start()
    thread.join()
    return found[0]


WAYS: tuple[Way, ...] = (
    directly,
    awaited,
    as_a_task,
    to_thread,
    in_the_default_executor,
    in_a_pool_that_all_cases_share,
    in_a_thread,
    in_a_loop_of_its_own,
)


async def run_case(shop: Any, functions: Any, number: int, ways: list[Way], pool: ThreadPoolExecutor) -> FakeDispatcher:
    me = f"case {number}"
    mocks, problems = parse_mocks(
        {name: {"$match": [{"when": {"who": me}, "$return": me}]} for name in ("check", "acheck", "look_up")}
    )
    assert problems == []
    dispatcher = FakeDispatcher(mocks, functions)
    with patch_functions(functions, dispatcher):
        for way in ways:
            await asyncio.sleep(0)
            assert await way(shop, me, pool) == me
    return dispatcher


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10_000), steps=st.integers(1, 6))
def test_fifty_concurrent_cases_do_not_see_each_others_mocks(make_module: Any, seed: int, steps: int) -> None:
    shop = make_module(SHOP)
    targets = {"check": "check", "acheck": "acheck", "look_up": "Client.look_up"}
    functions, problems = parse_declarations(
        {name: {"patch": f"{shop.__name__}:{target}"} for name, target in targets.items()}
    )
    assert problems == []
    choose = random.Random(seed)
    plans = [choose.choices(WAYS, k=steps) for _ in range(CASES)]

    async def all_at_once() -> list[FakeDispatcher]:
        with ThreadPoolExecutor(4) as pool:
            return await asyncio.gather(*(run_case(shop, functions, i, plan, pool) for i, plan in enumerate(plans)))

    for number, dispatcher in enumerate(asyncio.run(all_at_once())):
        assert dispatcher.fault is None
        assert [call.arguments for call in dispatcher.calls] == [{"who": f"case {number}"}] * steps
    assert shop.REACHED == []
    assert shop.check("afterwards") == "real"
    assert threading.Thread.start.__module__ == "threading"


def test_cases_in_fifty_threads_do_not_see_each_others_mocks(make_module: Any) -> None:
    shop = make_module(SHOP)
    functions, _ = parse_declarations({"check": {"patch": f"{shop.__name__}:check"}})
    barrier = threading.Barrier(CASES)
    wrong: list[str] = []

    def run(number: int) -> None:
        mocks, _ = parse_mocks({"check": {"$sequence": [f"{number}:{step}" for step in range(20)]}})
        dispatcher = FakeDispatcher(mocks, functions)
        with patch_functions(functions, dispatcher):
            barrier.wait(30)
            found = [shop.check(who=step) for step in range(20)]
        if found != [f"{number}:{step}" for step in range(20)] or len(dispatcher.calls) != 20:
            wrong.append(f"{number}: {found}")

    threads = [threading.Thread(target=run, args=(number,)) for number in range(CASES)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert shop.REACHED == []
    assert shop.check("afterwards") == "real"


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_an_unmocked_call_is_its_own_cases_failure_alone(make_module: Any, way: Way) -> None:
    shop = make_module(SHOP)
    functions, _ = parse_declarations(
        {
            "check": {"patch": f"{shop.__name__}:check"},
            "acheck": {"patch": f"{shop.__name__}:acheck"},
            "look_up": {"patch": f"{shop.__name__}:Client.look_up"},
        }
    )

    async def both() -> tuple[FakeDispatcher, Any]:
        with ThreadPoolExecutor(2) as pool:
            good = asyncio.create_task(run_case(shop, functions, 1, [way] * 3, pool))
            with patch_functions(functions, FakeDispatcher(None, functions)):
                outcomes = await asyncio.gather(shop.acheck("2"), return_exceptions=True)
            return await good, outcomes[0]

    dispatcher, outcome = asyncio.run(both())
    assert str(outcome) == "acheck is not mocked in this case; nothing is"
    assert [call.problem for call in dispatcher.calls] == [None, None, None]
