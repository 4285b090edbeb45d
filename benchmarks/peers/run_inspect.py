"""inspect-ai: mockllm played by the agent, tools mocked per sample, a scorer of our own. BENCH_LEAN: least logging."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from typing import Any

import desk
from inspect_ai import Task, eval
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import CORRECT, INCORRECT, Score, accuracy, scorer
from inspect_ai.solver import Generate, TaskState, generate, solver
from inspect_ai.tool import ToolDef, ToolParams

USAGE = ModelUsage(input_tokens=300, output_tokens=50, total_tokens=350)  # else it counts, and downloads a table


async def model(input: Any, tools: Any, tool_choice: Any, config: Any) -> ModelOutput:
    if desk.WAIT:
        await asyncio.sleep(desk.WAIT)
    message = next(said.text for said in input if said.role == "user")
    name, value = desk.step(message, [json.loads(said.text) for said in input if said.role == "tool"])
    if name is None:
        output = ModelOutput.from_content("mockllm/model", value)
    else:
        output = ModelOutput.for_tool_call("mockllm/model", name, value)
    output.usage = USAGE
    return output


def mock_tool(declared: dict[str, Any], reply: Any) -> Any:
    async def execute(**given: Any) -> str:
        return json.dumps(reply)

    parameters = ToolParams.model_validate(declared["parameters"])
    return ToolDef(execute, name=declared["name"], description=declared["description"], parameters=parameters).as_tool()


@solver
def mocked_tools() -> Any:
    async def solve(state: TaskState, generate: Generate) -> TaskState:
        state.tools = [mock_tool(tool, state.metadata["mocks"][tool["name"]]) for tool in state.metadata["tools"]]
        return state

    return solve


@scorer(metrics=[accuracy()])
def right_calls() -> Any:
    async def score(state: TaskState, target: Any) -> Score:
        asked = [call for said in state.messages if said.role == "assistant" for call in said.tool_calls or []]
        calls = [{"name": call.function, "arguments": call.arguments} for call in asked]
        wrong = desk.problems(calls, state.metadata["expected"])
        return Score(value=INCORRECT if wrong else CORRECT, explanation=", ".join(wrong))

    return score


if __name__ == "__main__":
    cases = desk.cases()
    samples = [
        Sample(id=c["name"], input=c["message"], metadata={k: c[k] for k in ("tools", "mocks", "expected")})
        for c in cases
    ]
    lean: dict[str, Any] = {"log_samples": False, "log_realtime": False} if os.environ.get("BENCH_LEAN") else {}
    with tempfile.TemporaryDirectory() as logs:
        log = eval(
            Task(dataset=MemoryDataset(samples), solver=[mocked_tools(), generate()], scorer=right_calls()),
            model=get_model("mockllm/model", custom_outputs=model),
            max_samples=desk.CONCURRENCY,
            max_connections=desk.CONCURRENCY,
            display="none",
            log_dir=logs,
            **lean,
        )[0]
    if log.status != "success":
        sys.exit(str(log.error and log.error.traceback))
    desk.told(round(log.results.scores[0].metrics["accuracy"].value * len(cases)), log.results.completed_samples)
