"""agentevals: its strict trajectory matcher in parametrised tests."""

from __future__ import annotations

import json
from typing import Any

import desk
import pytest
from agentevals.trajectory.match import create_trajectory_match_evaluator

CASES = desk.cases()
evaluate = create_trajectory_match_evaluator(trajectory_match_mode="strict")


def messages(case: dict[str, Any], calls: list[dict[str, Any]], answer: str) -> list[dict[str, Any]]:
    told: list[dict[str, Any]] = [{"role": "user", "content": case["message"]}]
    for number, call in enumerate(calls):
        function = {"name": call["name"], "arguments": json.dumps(call["arguments"])}
        asked = {"id": f"c{number}", "type": "function", "function": function}
        told.append({"role": "assistant", "content": "", "tool_calls": [asked]})
        told.append({"role": "tool", "tool_call_id": f"c{number}", "content": json.dumps(case["mocks"][call["name"]])})
    return [*told, {"role": "assistant", "content": answer}]


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_case(case: dict[str, Any]) -> None:
    calls, answer = desk.act(case["message"], desk.mocked(case))
    result = evaluate(
        outputs=messages(case, calls, answer), reference_outputs=messages(case, case["reference"], answer)
    )
    assert result["score"], result
    assert case["expected"]["phrase"] in calls[-1]["arguments"]["body"]
