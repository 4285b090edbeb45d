"""deepeval's metric for tool calls, in order and with their parameters, without a judge."""

from __future__ import annotations

from typing import Any

from deepeval.metrics import ToolCorrectnessMetric
from deepeval.models import DeepEvalBaseLLM
from deepeval.test_case import ToolCall, ToolCallParams


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


def metric(*, async_mode: bool) -> ToolCorrectnessMetric:
    return ToolCorrectnessMetric(
        threshold=1.0,
        model=NoJudge(),
        should_consider_ordering=True,
        should_exact_match=True,
        evaluation_params=[ToolCallParams.INPUT_PARAMETERS],
        include_reason=False,
        async_mode=async_mode,
    )
