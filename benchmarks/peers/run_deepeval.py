"""deepeval.evaluate(): the agents gathered by the user, ToolCorrectnessMetric without a judge."""

from __future__ import annotations

import asyncio
from typing import Any

import desk
from deepeval import evaluate
from deepeval.evaluate.configs import AsyncConfig, CacheConfig, DisplayConfig
from deepeval.metrics import ToolCorrectnessMetric
from deepeval.models import DeepEvalBaseLLM
from deepeval.test_case import LLMTestCase, ToolCall, ToolCallParams


class NoJudge(DeepEvalBaseLLM):
    def load_model(self) -> None:
        return None

    def generate(self, *given: Any, **named: Any) -> str:
        raise RuntimeError("no judge")

    async def a_generate(self, *given: Any, **named: Any) -> str:
        raise RuntimeError("no judge")

    def get_model_name(self) -> str:
        return "none"


def tools(calls: list[dict[str, Any]]) -> list[ToolCall]:
    return [ToolCall(name=call["name"], input_parameters=call["arguments"]) for call in calls]


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
metric = ToolCorrectnessMetric(
    threshold=1.0,
    model=NoJudge(),
    should_consider_ordering=True,
    should_exact_match=True,
    evaluation_params=[ToolCallParams.INPUT_PARAMETERS],
    include_reason=False,
)
found = evaluate(
    made,
    [metric],
    async_config=AsyncConfig(max_concurrent=desk.CONCURRENCY),
    cache_config=CacheConfig(write_cache=False),
    display_config=DisplayConfig(show_indicator=False, print_results=False, inspect_after_run=False),
)
desk.told(sum(result.success for result in found.test_results), len(found.test_results))
