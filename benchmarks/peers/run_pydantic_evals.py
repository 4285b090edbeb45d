"""pydantic-evals: a Dataset in code, or from one YAML file that it wrote itself (BENCH_YAML)."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from typing import Any

import desk
from pydantic_evals import Case, Dataset
from pydantic_evals.evaluators import Evaluator, EvaluatorContext


@dataclass
class Calls(Evaluator):
    def evaluate(self, ctx: EvaluatorContext) -> dict[str, bool]:
        wrong = desk.problems(ctx.output, ctx.metadata)
        return {name: name not in wrong for name in ("count", "order", "exact", "partial", "phrase")}


async def task(inputs: dict[str, Any]) -> list[dict[str, Any]]:
    return (await desk.aact(inputs["message"], desk.mocked(inputs)))[0]


def dataset() -> Any:
    path = os.environ.get("BENCH_YAML", "")
    if path and os.path.exists(path):
        return Dataset[dict, Any, dict].from_file(path, custom_evaluator_types=[Calls])
    cases = [
        Case(name=case["name"], inputs={k: case[k] for k in ("message", "tools", "mocks")}, metadata=case["expected"])
        for case in desk.cases()
    ]
    made = Dataset(name="bench", cases=cases, evaluators=[Calls()])
    if path:
        made.to_file(path, schema_path=None)
    return made


if __name__ == "__main__":
    report = asyncio.run(dataset().evaluate(task, max_concurrency=desk.CONCURRENCY, progress=False))
    if os.environ.get("BENCH_YAML"):
        report.print()
    desk.told(sum(all(a.value for a in case.assertions.values()) for case in report.cases), len(report.cases))
