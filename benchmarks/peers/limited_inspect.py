"""inspect-ai against the model of serve_model.py, at BENCH_URL: BENCH_CASES samples of three turns, BENCH_CONCURRENCY
at once.
"""

from __future__ import annotations

import os
import tempfile

from inspect_ai import Task, eval
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import get_model
from inspect_ai.scorer import includes
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import Tool, tool


@tool
def look_up() -> Tool:
    async def execute(id: str) -> str:
        """Look an order up.

        Args:
            id: The order.
        """
        return "there"

    return execute


if __name__ == "__main__":
    cases, concurrency = int(os.environ["BENCH_CASES"]), int(os.environ["BENCH_CONCURRENCY"])
    samples = [Sample(id=number + 1, input="Are A1 and A2 there?", target="there") for number in range(cases)]
    with tempfile.TemporaryDirectory() as logs:
        log = eval(
            Task(dataset=MemoryDataset(samples), solver=[use_tools(look_up()), generate()], scorer=includes()),
            model=get_model("openai-api/bench/m", base_url=os.environ["BENCH_URL"], api_key="none"),
            max_samples=concurrency,
            max_connections=concurrency,
            fail_on_error=False,
            display="none",
            log_dir=logs,
        )[0]
        good = sum(sample.error is None for sample in log.samples or [])  # read from the log
    print(f"DONE {good}")
