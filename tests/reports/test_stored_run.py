"""Run files whose verdicts are read one at a time."""

from __future__ import annotations

from pathlib import Path

import pytest

from evalkit.errors import UsageError
from evalkit.hosts.reports.run_file import Journal, load_run, read_verdicts, write_run
from evalkit.hosts.reports.serialization import to_line
from evalkit.records.run import Run
from evalkit.records.verdict import Verdict

VERDICTS = tuple(Verdict(case_id=f"s/a_00{number}.yaml", status=status) for number, status in enumerate(["passed"] * 3))


def test_the_verdicts_are_those_of_the_whole_run(tmp_path: Path, warranty_verdict: Verdict) -> None:
    file = tmp_path / "run.json"
    write_run(file, Run(verdicts=(*VERDICTS, warranty_verdict)))
    assert tuple(read_verdicts(file)) == load_run(file).verdicts


def test_so_they_are_of_a_journal_and_of_a_file_in_another_layout(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "run.journal.jsonl")
    for verdict in VERDICTS:
        journal.append(verdict.case_id, to_line(verdict))
    journal.close()
    assert tuple(read_verdicts(tmp_path / "run.journal.jsonl")) == VERDICTS
    file = tmp_path / "run.json"
    write_run(file, Run(verdicts=VERDICTS))
    file.write_text(file.read_text("ascii").replace("\n", ""), "ascii")
    assert tuple(read_verdicts(file)) == VERDICTS


def test_the_first_is_there_before_the_last_is_read(tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    write_run(file, Run(verdicts=VERDICTS))
    file.write_text(file.read_text("ascii").replace('"s/a_002.yaml"', "5, nonsense"), "ascii")
    verdicts = read_verdicts(file)
    assert next(verdicts) == VERDICTS[0]
    assert next(verdicts) == VERDICTS[1]
    with pytest.raises(UsageError, match="a damaged run file"):
        next(verdicts)


def test_no_such_file_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no such run file"):
        next(read_verdicts(tmp_path / "run.json"))
