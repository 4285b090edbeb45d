"""Redaction changes strings, and nothing on which a verdict, a gate or a tool that reads the file depends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from evalkit.gate.decision import decide
from evalkit.hosts.reports.serialization import from_line, redact_decision, redact_record, redact_run, redact_verdict
from evalkit.records.run import GateDecision, Policy, Run
from evalkit.records.transcript import FunctionCall, RunFault, Transcript
from evalkit.records.verdict import FAILED, CallVerdict, Reason, Verdict
from evalkit.text.redact import REDACTED, SECRET_KEYS, Redactor
from tests.reports.test_any_verdict import any_verdict

KEPT = ("case_id", "status", "category", "tags", "must_pass", "runs_planned", "min_pass", "path", "version")
# Words of the records themselves, which an environment may hold as the value of a variable that looks secret.
SECRETS = [
    "must_pass",
    "scenarios",
    "passed",
    "failed",
    "case_id",
    "redacted",
    "[redacted]",
    "d]x[red",
    "12345678",
    "a",
    '"',
]
secrets = st.lists(st.sampled_from(SECRETS) | st.text(min_size=1, max_size=4), max_size=4)


def describe_structure(value: object) -> object:
    """Everything but the strings: keys, numbers, lengths."""
    if isinstance(value, dict):
        return {key: describe_structure(item) for key, item in value.items()}
    if isinstance(value, list):
        return [describe_structure(item) for item in value]
    return str if isinstance(value, str) else value


@settings(max_examples=150, deadline=None)
@given(any_verdict, secrets, st.sampled_from(SECRET_KEYS), st.text(max_size=12), st.integers() | st.text(max_size=12))
def test_the_structure_the_verdict_and_the_ids_stay(
    verdict: Verdict, values: list[str], key: str, secret: str, other: object
) -> None:
    call = FunctionCall(
        name="log_in", arguments={key: secret, "other": other, "said": f"{secret} {{'{key}': '{secret}'"}
    )
    verdict = replace(verdict, transcript=replace(verdict.transcript, calls=(*verdict.transcript.calls, call)))
    redactor = Redactor(values)
    line, clean = redact_verdict(verdict, redactor)
    plain = from_line(redact_verdict(verdict, lambda text: text)[0])
    assert from_line(line) == clean
    assert [getattr(clean, name) for name in KEPT] == [getattr(plain, name) for name in KEPT]
    assert describe_structure(clean.to_json()) == describe_structure(plain.to_json())
    if secret and secret != REDACTED:
        assert clean.transcript.calls[-1].arguments[key] == REDACTED
    assert redact_verdict(clean, redactor)[1] == clean


@settings(max_examples=300, deadline=None)
@given(st.text(), secrets)
def test_redacted_text_stays_as_it_is(text: str, values: list[str]) -> None:
    redactor = Redactor(values)
    once = redactor(text)
    assert redactor(once) == once


@pytest.mark.parametrize("value", ["12345678", 'quo"te', "back\\slash", "'password': '", "lone \ud800"])
def test_a_secret_that_a_number_repeats_leaves_the_number(value: str) -> None:
    call = FunctionCall(name="log_in", arguments={"password": value, "account": 12345678, "text": f"x{value}"})
    verdict = Verdict(case_id="a/log_in_001.yaml", transcript=Transcript(calls=(call,)), status="passed")
    line, clean = redact_verdict(verdict, Redactor())
    assert json.loads(line)["transcript"]["calls"][0]["arguments"] == {
        "password": REDACTED,
        "account": 12345678,
        "text": f"x{REDACTED}",
    }
    assert from_line(line) == clean


def test_a_known_secret_that_is_a_number_leaves_numbers() -> None:
    verdict = Verdict(
        transcript=Transcript(calls=(FunctionCall(name="f", arguments={"n": 12345678, "s": "12345678"}),)),
        status="passed",
    )
    assert redact_verdict(verdict, Redactor(["12345678"]))[1].transcript.calls[0].arguments == {
        "n": 12345678,
        "s": REDACTED,
    }


@pytest.mark.parametrize(
    "response",
    ["{'password': 'must_pass'}", "'password': '", '"password": "must_pass", "must_pass": true', "password=must_pass"],
)
def test_no_reply_takes_must_pass_away(response: str) -> None:
    reason = Reason(code="missing_call", message="no call")
    bad = Verdict(
        case_id="a/refund_001.yaml",
        status=FAILED,
        must_pass=True,
        reasons=(reason,),
        transcript=Transcript(response=response, metadata={"password": "must_pass", "api_key": "a/refund_001.yaml"}),
    )
    good = [Verdict(case_id=f"a/refund_{n:03}.yaml", status="passed") for n in range(2, 400)]
    ids = (bad.case_id, *(verdict.case_id for verdict in good))
    run = Run(verdicts=(bad, *good), selected=ids, collected=len(ids))
    clean = redact_run(run, Redactor(["must_pass", "refund_001", "failed"]))
    policy = Policy()
    assert decide(clean, policy) == decide(run, policy)
    assert decide(clean, policy).status == "missed"
    assert [verdict.case_id for verdict in clean.verdicts] == list(ids)


def test_text_in_every_field_is_redacted() -> None:
    secret = "canary-4711"
    verdict = Verdict(
        case_id="a/b_001.yaml",
        summary=secret,
        warnings=(f"saw {secret}",),
        quarantined=secret,
        calls=(CallVerdict(call=FunctionCall(name=secret, result=[{"deep": [secret]}])),),
        reasons=(Reason(code="missing_call", message=secret, expected=secret, actual={"x": secret}),),
        transcript=Transcript(fault=RunFault(code="agent_raised", message=secret, traceback=secret)),
        case={"input": {"message": secret}},
        status="passed",
    )
    assert secret not in redact_verdict(verdict, Redactor([secret]))[0]


def test_ids_of_a_decision_stay() -> None:
    decision = GateDecision(status="missed", reasons=("scenarios",), facts={"changes": {"gone": ["scenarios/a"]}})
    clean = redact_decision(decision, Redactor(["scenarios"]))
    assert clean.facts == decision.facts
    assert clean.reasons == (REDACTED,)


def test_letters_that_look_like_those_of_a_key_hide_none() -> None:
    call = FunctionCall(name="f", arguments={"pa\u017f\u017fword": "tiger-lily"})
    line, _ = redact_verdict(Verdict(transcript=Transcript(calls=(call,)), status="passed"), Redactor())
    assert "tiger-lily" not in line


def test_a_text_of_many_tokens_that_are_none_takes_linear_time() -> None:
    """Ten times the text in far less than a hundred times the steps: a quadratic search would not end here."""
    Redactor()("-eyJ" * 500_000)


def test_secrets_of_the_environment_leave_ids_and_keys_of_a_run(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SORT_KEY", "must_pass")
    monkeypatch.setenv("PROJECT_KEY", "scenarios")
    monkeypatch.setenv("ACCOUNT_TOKEN", "12345678")
    pytester.makeconftest(
        "import evalkit\n@evalkit.agent('a')\ndef run(task):\n"
        "    task.call('log_in', password='12345678', account=12345678)\n    return 'done, must_pass'\n"
    )
    folder = pytester.mkdir("scenarios")
    (folder / "log_001.yaml").write_text(
        "agent: a\nmust_pass: true\ninput: {message: hello, mock_function_responses: {log_in: {ok: true}}}\n"
        "expected_output: {expected_function_calls: [log_in]}\n"
    )
    result = pytester.runpytest_subprocess("--evalkit", "scenarios")
    assert result.ret == 0, result.stdout.str()
    run: dict[str, Any] = json.loads(Path(pytester.path, ".evalkit/last-run.json").read_text())
    assert run["selected"] == ["scenarios/log_001.yaml"]
    [verdict] = run["verdicts"]
    assert (verdict["case_id"], verdict["must_pass"]) == ("scenarios/log_001.yaml", True)
    assert verdict["transcript"]["calls"][0]["arguments"] == {"password": REDACTED, "account": 12345678}
    assert verdict["transcript"]["response"] == f"done, {REDACTED}"


def test_a_redactor_of_text_alone_serves_as_well() -> None:
    verdict = Verdict(case_id="x", summary="x", status="passed")
    assert redact_record(verdict, lambda text: text.replace("x", "y")) == Verdict(
        case_id="x", summary="y", status="passed"
    )


def test_data_of_features_keeps_the_fields_that_records_keep() -> None:
    """A declared type says which fields are those of records; data without one, and other keys, are text."""
    policies = [
        {"name": "once", "rule": "at most 1 pay", "place": "s/policies.yaml:1", "applied": 1, "place_note": "a"}
    ]
    handoffs = [{"target": "billing", "source": "triage", "kind": "handoff", "user_turn": 0}]
    call = FunctionCall(name="pay", features={"approvals": {"answer": "denied", "reason": "no"}})
    transcript = Transcript(calls=(call,), features={"handoffs": handoffs, "absent": {"place": "here"}})
    verdict = Verdict(case_id="a", status=FAILED, transcript=transcript, features={"policies": policies})
    clean = redact_record(verdict, lambda text: "?")
    assert clean.features["policies"] == [{**policies[0], "name": "?", "rule": "?", "place_note": "?"}]
    assert clean.transcript.features == {
        "handoffs": [{**handoffs[0], "target": "?", "kind": "?"}],
        "absent": {"place": "?"},
    }
    assert clean.transcript.calls[0].features == {"approvals": {"answer": "?", "reason": "?"}}
    assert redact_record(verdict, lambda text: text) is verdict
