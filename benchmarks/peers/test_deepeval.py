"""deepeval test run: a parametrised test, and deepeval's metric in its assert."""

from __future__ import annotations

from typing import Any

import desk
import pytest
from deepeval import assert_test
from deepeval.test_case import LLMTestCase
from deepeval_metric import metric, tools

CASES = desk.cases()


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_case(case: dict[str, Any]) -> None:
    calls, answer = desk.act(case["message"], desk.mocked(case))
    made = LLMTestCase(
        input=case["message"],
        actual_output=answer,
        tools_called=tools(calls),
        expected_tools=tools(case["reference"]),
    )
    assert_test(made, [metric(async_mode=False)], run_async=False)
