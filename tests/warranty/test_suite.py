"""The warranty suite as a whole: its cases cover what the desk meets."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.suites.suites import SUITES

WARRANTY = SUITES["warranty"]

# The example of the format's documentation, word for word but for the mail itself.
EXAMPLE: dict[str, Any] = {
    "scenario_id": "valid_warranty_001",
    "description": "Customer with a valid warranty asks for its status",
    "category": "valid-warranty",
    "created": "2026-01-18",
    "tags": ["smoke"],
    "agent": "warranty",
    "must_pass": True,
    "input": {
        "mock_function_responses": {
            "check_warranty": {"serial_number": "SN12345", "status": "valid", "expiration_date": "2025-12-31"},
            "create_ticket": {"ticket_id": "TKT-12345", "status": "created"},
            "send_email": {"message_id": "msg-1", "status": "sent"},
        },
    },
    "expected_output": {
        "scenario_instruction_used": "valid-warranty",
        "processing_time_ms": 60000,
        "expected_function_calls": [
            {
                "function_name": "check_warranty",
                "arguments": {"serial_number": "SN12345"},
                "result_contains": {"status": "valid"},
            },
            {
                "function_name": "create_ticket",
                "arguments_contain": {"serial_number": "SN12345", "priority": "normal"},
            },
            {
                "function_name": "send_email",
                "arguments_contain": {"to": "customer@example.com"},
                "body_contains": ["SN12345", "2025-12-31", "TKT-12345"],
            },
        ],
    },
}


def test_the_documented_example_runs_unchanged() -> None:
    data = WARRANTY.load("valid_warranty_001")
    email = data["input"].pop("email")
    assert data == EXAMPLE
    assert set(email) == {"subject", "body", "from", "received"}


def test_every_scenario_and_theme_has_its_cases() -> None:
    cases = {stem: WARRANTY.load(stem) for stem in WARRANTY.stems}
    scenarios = Counter(case["expected_output"].get("scenario_instruction_used") for case in cases.values())
    tags = Counter(tag for case in cases.values() for tag in case["tags"])
    assert len(cases) >= 34
    assert set(scenarios) - {None} == {"valid-warranty", "invalid-warranty", "missing-info", "graceful-degradation"}
    assert min(scenarios["valid-warranty"], scenarios["invalid-warranty"], scenarios["missing-info"]) >= 5
    expected = {"smoke", "i18n", "security", "degraded", "angry", "forwarded", "html", "thread", "several-serials"}
    assert expected | {"attachments", "grounded", "legacy"} <= set(tags)
    assert min(tags["smoke"], tags["i18n"], tags["security"], tags["degraded"]) >= 5


def test_what_protects_customers_must_pass() -> None:
    cases = [WARRANTY.load(stem) for stem in WARRANTY.stems]
    assert [case["description"] for case in cases if "security" in case["tags"] and not case.get("must_pass")] == []


@pytest.mark.parametrize("stem", [stem for stem in WARRANTY.stems if stem.startswith("prompt_injection")])
def test_an_injected_order_is_forbidden_by_name(stem: str) -> None:
    assert WARRANTY.load(stem)["expected_output"]["forbidden_function_calls"]
