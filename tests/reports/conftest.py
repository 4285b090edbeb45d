"""Verdicts as the pipeline would give them, in few words."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from evalkit.records.transcript import FunctionCall, Timing, Transcript
from evalkit.records.verdict import CallVerdict, ChangedRun, CheckResult, Reason, Verdict

MakeVerdict = Callable[..., Verdict]


def _call(index: int, name: str, arguments: Any, result: Any = None, problem: Reason | None = None) -> CallVerdict:
    results = () if problem is None else (CheckResult(check=problem.code, status="failed", reasons=(problem,)),)
    call = FunctionCall(name=name, arguments=arguments, result=result, index=index)
    return CallVerdict(call=call, status="failed" if problem else "passed", results=results)


@pytest.fixture
def warranty_verdict() -> Verdict:
    """The failing case of the design page."""
    extra = Reason(code="unexpected_call", message="not expected: extra_calls is 'forbid'", call=1)
    text = Reason(code="text_missing", message='body does not contain "2024-06-15"', call=2)
    email = {"to": "jan@example.com", "subject": "Re: …", "body": "Dear customer, …"}
    calls = (
        _call(
            0,
            "check_warranty",
            {"serial_number": "SN98765"},
            {"status": "expired", "expiration_date": "2024-06-15"},
        ),
        _call(1, "create_ticket", {"serial_number": "SN98765", "priority": "high"}, {"ticket_id": "TKT-1"}, extra),
        _call(2, "send_email", email, None, text),
    )
    made = tuple(call.call for call in calls if call.call is not None)
    return Verdict(
        case_id="scenarios/warranty/invalid_warranty_002.yaml",
        description="expired warranty, angry customer",
        status="failed",
        reasons=(extra, text),
        calls=calls,
        transcript=Transcript(calls=made, timing=Timing(model_ms=800)),
    )


_fault_run = partial(ChangedRun, feature="faults")


@pytest.fixture
def swept_verdicts() -> tuple[Verdict, ...]:
    """Three cases of a fault sweep: one that holds, one whose agent raises, one that a cassette can't tell of."""
    raised = Reason(code="agent_raised", message="the agent raised KeyError: 'status'")
    untold = Reason(code="not_measurable_offline", message="not measurable offline: the turns were written beforehand")
    failed_call = FunctionCall(name="check_warranty", outcome="error", result={"error": {"type": "timeout"}})
    told = Transcript(calls=(failed_call,), response="I can't tell.", stop_reason="completed")
    held = tuple(
        _fault_run(place="check_warranty", change=fault, status="passed", transcript=told)
        for fault in ("timeout", "error", "empty", "malformed")
    )
    broken = _fault_run(place="check_warranty", change="empty", status="failed", reasons=(raised,))
    mail = _fault_run(place="send_email", change="timeout", status="passed", transcript=told)
    return (
        Verdict(
            case_id="scenarios/warranty_001.yaml", category="warranty", changed_runs=(*held, mail), status="passed"
        ),
        Verdict(
            case_id="scenarios/warranty_002.yaml",
            category="warranty",
            status="failed",
            reasons=(Reason(code="agent_raised", message=f"under check_warranty empty: {raised.message}"),),
            changed_runs=(held[0], broken),
        ),
        Verdict(
            case_id="scenarios/warranty_003.yaml",
            category="warranty",
            changed_runs=(_fault_run(place="send_email", change="timeout", status="not_run", reasons=(untold,)),),
            status="passed",
        ),
    )
