"""Run files and journals: what is written is read back, whatever an agent put into it; bad files say why."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import jsonschema
import pytest
from msgspec.structs import replace

import evalkit
from evalkit.errors import UsageError
from evalkit.hosts.reports.run_file import Journal, load_run, read_journal, read_verdicts, write_run
from evalkit.hosts.reports.serialization import from_line, to_line
from evalkit.records.run import Run
from evalkit.records.transcript import FunctionCall, Transcript
from evalkit.records.verdict import Verdict


def verdict(case_id: str = "s/a_001.yaml", **fields: object) -> Verdict:
    return replace(Verdict(case_id=case_id, status="passed"), **fields)


def with_argument(value: object) -> Verdict:
    return verdict(transcript=Transcript(calls=(FunctionCall(name="f", arguments={"x": value}),)))


def test_a_verdict_survives_its_line(warranty_verdict: Verdict) -> None:
    line = to_line(warranty_verdict)
    assert "\n" not in line
    assert line.isascii()
    assert from_line(line) == warranty_verdict


NEXT_STEP = "; `pytest --evalkit` writes .evalkit/last-run.json"
NO_JSON = "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"


class Stubborn:
    def __repr__(self) -> str:
        raise RuntimeError("no")


CYCLE: list[object] = []
CYCLE.append(CYCLE)


@pytest.mark.parametrize(
    ("value", "read_back"),
    [
        ("\ud800", "\ud800"),
        (math.nan, "nan"),
        (-math.inf, "-inf"),
        ({(1, 2): "tuple key"}, {"(1, 2)": "tuple key"}),
        (b"bytes", "b'bytes'"),
        ({1}, "{1}"),
        (Stubborn(), "<Stubborn whose repr raises RuntimeError>"),
        (CYCLE, ["…"]),
        (10**30, 10**30),
    ],
    ids=lambda value: type(value).__name__,
)
def test_whatever_an_agent_passes_has_a_line(value: object, read_back: object) -> None:
    read = from_line(to_line(with_argument(value)))
    assert read.transcript.calls[0].arguments == {"x": read_back}


def test_a_value_nested_too_deep_is_cut() -> None:
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    assert '"\\u2026"' in to_line(with_argument(deep))


def test_a_run_file_is_read_back_as_it_was(tmp_path: Path, warranty_verdict: Verdict) -> None:
    run = Run(
        verdicts=(warranty_verdict, verdict()),
        collected=3,
        selected=("s/a_001.yaml",),
        started="2026-11-21T20:00:00+00:00",
        wall_s=1.5,
        evalkit="0.1.0",
        metadata={"gate": {"status": "met"}},
    )
    write_run(tmp_path / "new folder" / "run.json", run)
    assert load_run(tmp_path / "new folder" / "run.json") == run
    assert evalkit.load_run(str(tmp_path / "new folder" / "run.json")) == run
    assert [path.name for path in (tmp_path / "new folder").iterdir()] == ["run.json"]


def test_a_run_file_fits_its_published_schema(tmp_path: Path, warranty_verdict: Verdict) -> None:
    write_run(tmp_path / "run.json", Run(verdicts=(warranty_verdict, with_argument(math.nan))))
    schema = json.loads(files("evalkit.hosts.reports").joinpath("run.schema.json").read_text("utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.Draft202012Validator(schema).validate(json.loads((tmp_path / "run.json").read_text("ascii")))


def test_a_write_that_fails_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    target = tmp_path / "run.json"
    write_run(target, Run(evalkit="old"))

    def lines() -> object:
        yield "{}"
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_run(target, Run(evalkit="new"), lines())  # type: ignore[arg-type]
    assert load_run(target).evalkit == "old"
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "{file}: there is no such run file; `pytest --evalkit` writes .evalkit/last-run.json"),
        ("{]", "{file}: not a run file of evalkit: " + NO_JSON + NEXT_STEP),
        ("[]", "{file}: not a run file of evalkit: it has no 'verdicts'" + NEXT_STEP),
        (
            '{"version": 99, "verdicts": []}',
            "{file}: run file version 99 is newer than 2, the last that this evalkit reads",
        ),
        (
            '{"version": 1, "verdicts": [3]}',
            "{file}: a damaged run file: Expected `object`, got `int` - at `$.verdicts[0]`",
        ),
        (
            '{"version": 1, "selected": [], "verdicts": [{}]}',
            "{file}: a damaged run file: Object missing required field `status` - at `$.verdicts[0]`",
        ),
        (
            '{"version": 1, "verdicts": []}',
            "{file}: a damaged run file: it has no 'selected', the cases that should have a verdict",
        ),
        (
            '{"version": 1, "selected": [], "verdicts": [{"status": "passed"}]}',
            "{file}: a damaged run file: verdicts[0] has no 'case_id'",
        ),
        (
            '{"version": 1, "selected": ["a"], "verdicts": [{"case_id": "a", "status": "great"}]}',
            "{file}: a damaged run file: verdicts[0]: the status 'great' is none of passed, failed, error, not_run",
        ),
        (
            '{"version": 1, "selected": ["a"], "verdicts": [{"case_id": "a", "status": "passed"}]}',
            "{file}: a damaged run file: it has no 'shard', which says whether it is a part of a run",
        ),
        (
            '{"version": 1, "shard": null, "selected": ["a"], "verdicts": [{"case_id": "a", "status": "failed"}]}',
            "{file}: a damaged run file: the verdict of a has no 'must_pass'",
        ),
        (
            '{"version": 1, "selected": ["a"], "verdicts": [{"case_id": "a", "status": "failed"}, '
            '{"case_id": "b", "status": "passed"}, {"case_id": "a", "status": "passed"}]}',
            "{file}: a damaged run file: a has two verdicts, verdicts[0] and [2]",
        ),
    ],
)
def test_a_file_that_is_no_run_file_says_why(tmp_path: Path, content: str | None, message: str) -> None:
    file = tmp_path / "run.json"
    if content is not None:
        file.write_text(content)
    with pytest.raises(UsageError) as caught:
        load_run(file)
    assert str(caught.value) == message.format(file=file)


def test_the_second_verdict_of_a_case_is_refused_in_the_layout_that_evalkit_writes_too(tmp_path: Path) -> None:
    """The last one would count, and could be anybody's."""
    file = tmp_path / "run.json"
    write_run(file, Run(selected=("a",), verdicts=(verdict("a", status="failed"), verdict("a"))))
    for read in (load_run, lambda path: list(read_verdicts(path))):
        with pytest.raises(UsageError) as caught:
            read(file)
        assert str(caught.value) == f"{file}: a damaged run file: a has two verdicts, verdicts[0] and [1]"


def test_a_journal_gives_back_each_case_as_it_was_told_last(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "deep" / "j.jsonl", {"selected": ["b", "a"]})
    for told in (verdict("a"), verdict("b"), verdict("a", status="failed")):
        journal.append(told.case_id, to_line(told))
    assert journal.read_verdict("a") == verdict("a", status="failed")
    assert journal.read_verdict("c") is None
    assert [from_line(line).case_id for line in journal.iter_lines(["b"])] == ["b", "a"]
    journal.close()
    run = load_run(tmp_path / "deep" / "j.jsonl")
    assert [told.status for told in run.verdicts] == ["failed", "passed"]
    assert run.selected == ("b", "a")
    assert run.interrupted


def test_a_journal_on_a_full_disk_fails_where_it_is_written_and_nowhere_else(tmp_path: Path) -> None:
    """A buffer that can't be emptied would raise once more when it is closed, as a crash at the end of the session."""
    code = """
import resource, signal, sys
from pathlib import Path
from evalkit.hosts.reports.run_file import Journal
journal = Journal(Path("j.jsonl"))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
try:
    journal.append("a", "x" * 200)
except OSError as error:
    print("not written:", error.errno > 0)
journal.close()
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "not written: True\n"


def test_lines_of_the_run_before_are_for_the_reader_until_their_cases_are_told_anew(tmp_path: Path) -> None:
    file = tmp_path / "j.jsonl"
    Journal(file, {}).close()
    kept = (verdict("a"), verdict("b"))
    journal = Journal(file, {"selected": ["a", "b"]}, map(to_line, kept))
    assert read_journal(file).verdicts == kept
    assert list(journal.iter_lines(["a"])) == []
    assert journal.read_line("a") is None
    journal.append("b", to_line(verdict("b", status="failed")))
    journal.close()
    assert [told.status for told in read_journal(file).verdicts] == ["passed", "failed"]
    assert [path.name for path in tmp_path.iterdir()] == ["j.jsonl"]


def test_a_journal_without_a_file_works_and_leaves_none(tmp_path: Path) -> None:
    journal = Journal(None)
    journal.append("a", to_line(verdict("a")))
    assert journal.read_verdict("a") == verdict("a")
    journal.close(remove=True)
    assert not list(tmp_path.iterdir())


def test_a_journal_that_was_cut_off_in_a_line_keeps_what_came_before(tmp_path: Path) -> None:
    file = tmp_path / "j.jsonl"
    journal = Journal(file)
    journal.append("a", to_line(verdict("a")))
    journal.append("b", to_line(verdict("b")))
    journal.close()
    file.write_bytes(file.read_bytes()[:-20])
    assert [told.case_id for told in read_journal(file).verdicts] == ["a"]


def test_what_is_no_journal_is_refused(tmp_path: Path) -> None:
    (tmp_path / "j.jsonl").write_text('{"some": "log"}\n')
    with pytest.raises(UsageError, match="not a journal of version 1 of evalkit"):
        load_run(tmp_path / "j.jsonl")


def test_no_run_file_is_renamed_over_what_is_no_file(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(
        UsageError, match="pipe is no regular file, and the run file would take its place; name another"
    ):
        write_run(pipe, Run())
    assert pipe.is_fifo()


def test_a_verdict_of_a_journal_says_what_a_gate_asks_for(tmp_path: Path) -> None:
    journal = tmp_path / "run.journal.jsonl"
    head = '{"evalkit_journal": 1, "selected": ["a"]}'
    for verdict, problem in (
        ('{"case_id": "a", "status": "failed"}', "the verdict of a has no 'must_pass'"),
        ('{"case_id": "a", "status": "failel", "must_pass": true, "quarantined": null}', "the status 'failel' is none"),
    ):
        journal.write_text(f"{head}\n{verdict}\n")
        with pytest.raises(UsageError, match=problem):
            load_run(journal)
