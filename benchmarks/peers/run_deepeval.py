"""deepeval.evaluate(): the agents gathered by the user, ToolCorrectnessMetric without a judge."""

from __future__ import annotations

import asyncio
from typing import Any

import desk
from deepeval import evaluate
from deepeval.evaluate.configs import AsyncConfig, CacheConfig, DisplayConfig
from deepeval.test_case import LLMTestCase
from deepeval_metric import metric, tools


async def one(case: dict[str, Any], slots: asyncio.Semaphore) -> LLMTestCase:
    async with slots:
        calls, answer = await desk.aact(case["message"], desk.mocked(case))
    return LLMTestCase(
        name=case["name"],
        input=case["message"],
        actual_output=answer,
        tools_called=tools(calls),
        expected_tools=tools(case["reference"]),
    )


async def gathered() -> list[LLMTestCase]:
    slots = asyncio.Semaphore(desk.CONCURRENCY)
    return await asyncio.gather(*(one(case, slots) for case in desk.cases()))


made = asyncio.run(gathered())
asyncio.set_event_loop(asyncio.new_event_loop())
found = evaluate(
    made,
    [metric(async_mode=True)],
    async_config=AsyncConfig(max_concurrent=desk.CONCURRENCY),
    cache_config=CacheConfig(write_cache=False),
    display_config=DisplayConfig(show_indicator=False, print_results=False, inspect_after_run=False),
)
desk.told(sum(result.success for result in found.test_results), len(found.test_results))
