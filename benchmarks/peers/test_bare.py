"""What one writes by hand: a parametrised test over JSON."""

from __future__ import annotations

from typing import Any

import desk
import pytest

CASES = desk.cases()


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_case(case: dict[str, Any]) -> None:
    calls, _ = desk.act(case["message"], desk.mocked(case))
    expected = case["expected"]
    assert len(calls) == expected["count"]
    assert [call["name"] for call in calls] == expected["order"]
    by_name = {call["name"]: call["arguments"] for call in calls}
    assert by_name["find_book"] == expected["find_book"]
    assert {key: by_name["reserve"].get(key) for key in expected["reserve"]} == expected["reserve"]
    assert expected["phrase"] in by_name["send_mail"]["body"]
