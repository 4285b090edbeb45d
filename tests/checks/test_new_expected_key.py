"""A key of `expected_output` is a class and an entry: nothing else of evalkit knows its name.

The key of this test says how many calls a run must make at least.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from msgspec import Struct
from msgspec.structs import replace

import evalkit
from evalkit.checks import expected_keys
from evalkit.checks.absence import Demand
from evalkit.checks.evidence import Evidence
from evalkit.checks.expected_key import ExpectationDraft, ExpectedKey, RunChange, RunCheck
from evalkit.checks.key_schemas import COUNT
from evalkit.checks.reasons import build_failure, build_pass
from evalkit.errors import KeyPath, SpecError, UsageError, format_path
from evalkit.hosts.casecheck.mutants import list_kinds, observe
from evalkit.hosts.casecheck.mutation_score import compute_score
from evalkit.hosts.casecheck.smoke import run_smoke_check
from evalkit.hosts.casecheck.update import build_update
from evalkit.hosts.traces.evidence import find_missing_evidence
from evalkit.hosts.traces.log_formats import Conversation, LoggedMessage, ModelReply
from evalkit.jsonvalue import JsonValue
from evalkit.records.case import Case
from evalkit.records.settings import Settings
from evalkit.records.transcript import Transcript
from evalkit.records.verdict import PASSED, CheckResult, Verdict
from evalkit.runner.run_case import run_case
from evalkit.spec.load import load_case
from evalkit.spec.schema import build_case_schema


class LeastCalls(Demand, Struct, frozen=True):
    """`min_calls`."""

    min_calls: int
    path: KeyPath

    key = "min_calls"

    def judge(self, evidence: Evidence) -> CheckResult:
        count = len(evidence.calls)
        if count >= self.min_calls:
            return build_pass(self.key, f"{count} calls")
        message = f"{count} calls, expected at least {self.min_calls}"
        return build_failure(self.key, "missing_call", message, format_path(self.path))


class LeastCallsKey(ExpectedKey):
    """How many calls a run makes at least."""

    name = "min_calls"
    schema = COUNT
    doc = "At least so many function calls."
    in_turns = False
    looks_at_arguments = False
    looks_at_response = True
    counts_calls = True
    mistakes: Mapping[str, str] = {"no_calls": "no call is made"}

    def read(self, draft: ExpectationDraft, path: KeyPath, value: Any) -> RunCheck | None:
        count = draft.reader.read_count(path, value)
        return None if count is None else LeastCalls(count, path)

    def get_actual(self, transcript: Transcript) -> JsonValue:
        return len(transcript.calls)

    def mutate(self, transcript: Transcript) -> Iterator[RunChange]:
        none = replace(transcript, calls=())
        yield RunChange("no_calls", "no function is called", none, len(transcript.calls))


KEYS = (LeastCallsKey(),)


@pytest.fixture(autouse=True)
def entry(monkeypatch: pytest.MonkeyPatch) -> None:
    """The entry: what a new line of the table does."""
    monkeypatch.setitem(expected_keys._KEYS, LeastCallsKey.name, __name__)


CASE = """\
input:
  message: What is there?
  mock_function_responses: {search: [a, b]}
expected_output:
"""


def write(root: Path, end: str) -> Case:
    path = root / "scenarios" / "calls_001.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(CASE + end, "utf-8")
    return load_case(path, root=root)


def search(task: evalkit.Task) -> str:
    task.call("search")
    return "a and b"


def run(root: Path, end: str) -> Verdict:
    return run_case(write(root, end), search, Settings(root=root))


def test_editors_know_it() -> None:
    schema = build_case_schema()
    expected = {**schema["$defs"]["expected_output"], "$defs": schema["$defs"]}
    assert "min_calls" in schema["$defs"]["on_fault"]["properties"]
    assert Draft202012Validator(expected).is_valid({"min_calls": 2})
    assert not Draft202012Validator(expected).is_valid({"min_calls": "two"})


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("min_calls: two", 'min_calls must be a whole number from 1, got "two"; write it as digits'),
        ("min_call: 2", "unknown key 'min_call' in expected_output; did you mean 'min_calls'?"),
    ],
)
def test_it_is_read(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(SpecError) as error:
        write(tmp_path, f"  {line}\n")
    assert [problem.message for problem in error.value.problems] == [message]


def test_no_user_turn_has_it(tmp_path: Path) -> None:
    path = tmp_path / "scenarios" / "calls_001.yaml"
    path.parent.mkdir()
    path.write_text("input:\n  turns: [{user: Hello, expected_output: {min_calls: 1}}]\n", "utf-8")
    with pytest.raises(SpecError, match="min_calls is measured over the whole run"):
        load_case(path, root=tmp_path)


def test_no_check_of_a_project_has_its_name() -> None:
    with pytest.raises(UsageError, match="'min_calls' is a key of evalkit"):
        evalkit.check("min_calls")


def test_it_judges(tmp_path: Path) -> None:
    assert run(tmp_path, "  min_calls: 1\n").status == PASSED
    assert [(reason.code, reason.message, reason.place) for reason in run(tmp_path, "  min_calls: 2\n").reasons] == [
        ("missing_call", "1 calls, expected at least 2", "expected_output.min_calls")
    ]


def test_it_is_updated(tmp_path: Path) -> None:
    update = build_update(run(tmp_path, "  min_calls: 2   # so many\n"), tmp_path)
    assert update is not None
    assert (update.refusal, update.new) == ("", CASE + "  min_calls: 1   # so many\n")


def test_smoke_finds_what_no_run_can_meet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = write(tmp_path, "  expected_function_calls: [search]\n  min_calls: 2\n")
    (finding,) = run_smoke_check(case).findings
    assert (finding.code, finding.place) == ("missing_call", "expected_output.min_calls")
    monkeypatch.setattr(LeastCallsKey, "needs_run", "only a run tells how many")
    result = run_smoke_check(case)
    assert (result.findings, result.not_checked) == ((), ("expected_output.min_calls: only a run tells how many",))


def test_its_mistakes_are_tried_and_noticed(tmp_path: Path) -> None:
    assert list_kinds()["no_calls"] == "no call is made"
    tight = observe(write(tmp_path, "  min_calls: 1\n"), search, Settings(root=tmp_path))
    assert "no_calls" not in [survivor.kind for survivor in compute_score(tight).survivors]
    loose = observe(write(tmp_path, "  response_contains: b\n"), search, Settings(root=tmp_path))
    (survivor,) = (survivor for survivor in compute_score(loose).survivors if survivor.kind == "no_calls")
    assert survivor.keys == {"min_calls": 1}


def test_recorded_runs_that_lack_what_it_needs_are_errors(tmp_path: Path) -> None:
    events = (LoggedMessage("What is there?"), ModelReply(is_blank=True))
    conversation = Conversation(events=events, source="log.jsonl:1")
    assert find_missing_evidence(write(tmp_path, "  min_calls: 1\n"), conversation).startswith(
        "holds no final response"
    )
    assert find_missing_evidence(write(tmp_path, "  max_function_calls: 1\n"), conversation) == ""
