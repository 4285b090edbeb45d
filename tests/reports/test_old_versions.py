"""Run files of version 1, as it wrote them, are read: what features said stands under their names since."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evalkit.errors import UsageError
from evalkit.gate.outcomes import build_outcome
from evalkit.hosts.reports.run_file import load_run, read_journal, write_run
from evalkit.hosts.reports.summary import list_properties
from evalkit.hosts.reports.trace import render_trace
from evalkit.records.run import Run
from evalkit.records.transcript import Transcript, UserMessage
from evalkit.records.verdict import Verdict

FILES = sorted((Path(__file__).parent / "old_runs").glob("*.json"))


def walk_calls(holder: Any) -> Iterator[Any]:
    """The calls of a verdict: of its transcript, its lines, its runs and its changed ones."""
    for verdict in (holder, *holder.get("runs", ())):
        for part in (verdict, *(verdict.get("changed_runs") or verdict.get("faults") or ())):
            yield from part["transcript"]["calls"]
        yield from (line["call"] for line in verdict["calls"] if line.get("call"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_all_that_a_file_said_is_there(file: Path) -> None:
    old, new = json.loads(file.read_text("utf-8")), load_run(file).to_json()
    assert (old["version"], new["version"]) == (1, 2)
    policies = approvals = 0
    for before, after in zip(old["verdicts"], new["verdicts"], strict=True):
        assert (after["status"], after["reasons"]) == (before["status"], before["reasons"])
        for was, now in zip((before, *before["runs"]), (after, *after["runs"]), strict=True):
            assert now["features"].get("policies", []) == was["policies"]
            assert "policies" not in now
            policies += len(was["policies"])
        assert [(run["place"], run["change"], run["status"]) for run in after["changed_runs"]] == [
            (run["function"], run["fault"], run["status"]) for run in before["faults"]
        ]
        for was, now in zip(walk_calls(before), walk_calls(after), strict=True):
            assert now.get("features", {}).get("approvals") == was.get("approval")
            assert "approval" not in now
            approvals += "approval" in was
    assert policies
    assert approvals


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_it_is_written_as_a_file_of_today(file: Path, tmp_path: Path) -> None:
    run = load_run(file)
    write_run(tmp_path / "run.json", run)
    assert load_run(tmp_path / "run.json") == run == Run.from_json(json.loads(file.read_text("utf-8")))


def test_a_journal_of_then_is_read(tmp_path: Path) -> None:
    data = json.loads(FILES[0].read_text("utf-8"))
    head = {
        "evalkit_journal": 1,
        **{key: data[key] for key in ("selected", "collected", "started", "evalkit", "shard")},
    }
    lines = [json.dumps(line) for line in (head, *data["verdicts"])]
    journal = tmp_path / "run.journal.jsonl"
    journal.write_text("\n".join(lines) + "\n", "utf-8")
    assert read_journal(journal).verdicts == load_run(FILES[0]).verdicts


def test_reports_say_of_it_what_they_said() -> None:
    run = load_run(FILES[0])
    text = "".join(render_trace(verdict) for verdict in run.verdicts)
    assert "[approval: changed, asked amount=80]" in text
    assert "[approval: denied]" in text
    assert "excepted from policy confirmed, which the run broke: the customer has signed the letter" in text


def test_records_alone_are_read() -> None:
    data = json.loads(FILES[0].read_text("utf-8"))["verdicts"][-1]
    verdict = Verdict.from_json(data)
    assert Transcript.from_json(data["transcript"]) == verdict.transcript
    assert {call.features["approvals"]["answer"] for call in verdict.transcript.calls if call.features} == {"denied"}


def test_what_a_simulated_user_said_is_of_the_run() -> None:
    said = {"text": "My drill is broken.", "is_written": True}
    simulation = {"player": "model", "messages": [said], "last_words": {"text": "Bye"}, "ended_by": "user"}
    transcript = Transcript.from_json({"version": 1, "stop_reason": "completed", "simulation": simulation})
    assert transcript.messages == (UserMessage(text="My drill is broken.", is_written=True),)
    assert transcript.features == {
        "simulated_users": {"player": "model", "last_words": {"text": "Bye"}, "ended_by": "user"}
    }


def test_where_a_recorded_run_stands_is_still_told() -> None:
    transcript = {"version": 1, "stop_reason": "completed", "cassette": "trace", "trace": "chats.jsonl:1"}
    data = {"version": 1, "case_id": "a.yaml", "status": "passed", "transcript": transcript}
    verdict = Verdict.from_json(data)
    assert verdict.transcript.features == {"recorded_runs": "chats.jsonl:1"}
    assert list_properties(verdict) == {"evalkit_trace": "chats.jsonl:1"}
    assert build_outcome(verdict).features["recorded_runs"].sources == ("chats.jsonl:1",)


@pytest.mark.parametrize("record", [Run, Transcript])
def test_a_later_version_is_refused(record: type[Run] | type[Transcript]) -> None:
    with pytest.raises(UsageError, match="version 3 is newer than 2, the last that this evalkit reads"):
        record.from_json({"version": 3})
