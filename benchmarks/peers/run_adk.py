"""google-adk: LocalEvalService over an LlmAgent whose model is the agent, tools mocked before they are called."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import desk
from google.adk.agents import LlmAgent
from google.adk.evaluation.base_eval_service import EvaluateConfig, EvaluateRequest, InferenceConfig, InferenceRequest
from google.adk.evaluation.eval_case import EvalCase, IntermediateData, Invocation, SessionInput
from google.adk.evaluation.eval_metrics import EvalMetric, ToolTrajectoryCriterion
from google.adk.evaluation.evaluator import EvalStatus
from google.adk.evaluation.in_memory_eval_sets_manager import InMemoryEvalSetsManager
from google.adk.evaluation.local_eval_service import LocalEvalService
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.genai import types


class Scripted(BaseLlm):
    async def generate_content_async(self, llm_request: Any, stream: bool = False) -> AsyncIterator[LlmResponse]:
        if desk.WAIT:
            await asyncio.sleep(desk.WAIT)
        parts = [part for content in llm_request.contents for part in content.parts]
        message = next(part.text for part in parts if part.text)
        replies = [part.function_response.response for part in parts if part.function_response]
        name, value = desk.step(message, replies)
        call = None if name is None else types.FunctionCall(name=name, args=value)
        part = types.Part(text=value) if call is None else types.Part(function_call=call)
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


def find_book(isbn: str, branch: str) -> dict:
    """Looks a book up."""


def reserve(isbn: str, reader: str, days: int, shelf: str) -> dict:
    """Puts a book aside."""


def send_mail(to: str, subject: str, body: str) -> dict:
    """Writes to a reader."""


def mock(tool: Any, args: Any, tool_context: Any) -> Any:
    return tool_context.state["mocks"][tool.name]


def said(role: str, text: str) -> types.Content:
    return types.Content(role=role, parts=[types.Part(text=text)])


def eval_case(case: dict[str, Any]) -> EvalCase:
    uses = [types.FunctionCall(name=call["name"], args=call["arguments"]) for call in case["reference"]]
    turn = Invocation(
        user_content=said("user", case["message"]),
        final_response=said("model", ""),
        intermediate_data=IntermediateData(tool_uses=uses),
    )
    session = SessionInput(app_name="bench", user_id="u", state={"mocks": case["mocks"]})
    return EvalCase(eval_id=case["name"], session_input=session, conversation=[turn])


async def main() -> None:
    sets = InMemoryEvalSetsManager()
    sets.create_eval_set("bench", "set")
    for case in desk.cases():
        sets.add_eval_case("bench", "set", eval_case(case))
    agent = LlmAgent(
        name="desk",
        model=Scripted(model="scripted"),
        tools=[find_book, reserve, send_mail],
        before_tool_callback=mock,
    )
    service = LocalEvalService(root_agent=agent, eval_sets_manager=sets)
    wanted = InferenceRequest(
        app_name="bench", eval_set_id="set", inference_config=InferenceConfig(parallelism=desk.CONCURRENCY)
    )
    inferred = [result async for result in service.perform_inference(wanted)]
    exact = ToolTrajectoryCriterion(threshold=1.0, match_type=ToolTrajectoryCriterion.MatchType.EXACT)
    metric = EvalMetric(metric_name="tool_trajectory_avg_score", criterion=exact)
    config = EvaluateConfig(eval_metrics=[metric], parallelism=desk.CONCURRENCY)
    request = EvaluateRequest(inference_results=inferred, evaluate_config=config)
    results = [result async for result in service.evaluate(request)]
    desk.told(sum(result.final_eval_status == EvalStatus.PASSED for result in results), len(results))


asyncio.run(main())
