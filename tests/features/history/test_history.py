"""The history of runs: what is kept, what is merged, which trends are found, and what people are shown."""

from __future__ import annotations

import re
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from evalkit.errors import UsageError
from evalkit.features.history.history import History, describe_history, find_trends
from evalkit.records.run import Run
from evalkit.records.transcript import Timing, Transcript
from evalkit.records.verdict import Reason, Verdict

TODAY = date(2026, 11, 23)


def make_run(day: int, statuses: str, *, branch: str = "main", model: str | None = None, **fields: Any) -> Run:
    """Return a run of the cases a, b, c ..., each `p`assed, `f`ailed, `e`rror or `q`uarantined and failed."""
    names = {"p": "passed", "f": "failed", "e": "error", "q": "failed"}
    verdicts = tuple(
        Verdict(
            case_id=chr(ord("a") + number),
            status=names[letter],
            quarantined="known" if letter == "q" else None,
            reasons=(Reason(code="missing_call", message="not called"),) if letter in "fq" else (),
            transcript=Transcript(timing=Timing(model_ms=250)),
        )
        for number, letter in enumerate(statuses)
    )
    metadata = {"commit": f"{day:040x}", "branch": branch, "model": model, "gate": {"status": "met"}}
    ids = tuple(verdict.case_id for verdict in verdicts)
    started = f"2026-11-{day:02}T08:00:00+00:00"
    run = Run(verdicts=verdicts, selected=ids, collected=len(ids), started=started, evalkit="1", metadata=metadata)
    return replace(run, **fields)


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History(tmp_path / "new" / "history.sqlite")


def test_a_run_is_kept_once_with_its_outcomes(history: History) -> None:
    assert history.add(make_run(2, "pfeq"))
    assert not history.add(make_run(2, "pfeq"))

    (run,) = history.read_runs()

    assert (run.started, run.commit, run.branch, run.gate) == ("2026-11-02T08:00:00+00:00", f"{2:040x}", "main", "met")
    assert [run.count(status) for status in ("passed", "failed", "error")] == [1, 1, 1]
    case = run.cases["b"]
    assert (case.status, case.passed, case.measured, case.elapsed_ms, case.codes) == (
        "failed",
        0,
        1,
        250,
        "missing_call",
    )


def test_runs_are_selected_by_branch_and_model_the_oldest_first(history: History) -> None:
    for run in (make_run(3, "p"), make_run(1, "p", branch="x"), make_run(2, "p", model="gemini:m"), make_run(4, "p")):
        history.add(run)
    assert [run.started[8:10] for run in history.read_runs()] == ["01", "02", "03", "04"]
    assert [run.started[8:10] for run in history.read_runs(last=2)] == ["03", "04"]
    assert [run.started[8:10] for run in history.read_runs(branch="x")] == ["01"]
    assert [run.started[8:10] for run in history.read_runs(model="gemini:m")] == ["02"]


def test_runs_up_to_one_are_of_its_model(history: History) -> None:
    for day, model in ((1, None), (2, "openai:small"), (3, None), (4, None)):
        history.add(make_run(day, "p", model=model))
    assert [run.started[8:10] for run in history.read_runs_up_to(make_run(3, "p"))] == ["01", "03"]
    assert [run.started[8:10] for run in history.read_runs_up_to(make_run(5, "p"), last=2)] == ["03", "04"]
    assert [run.started[8:10] for run in history.read_runs_up_to(make_run(5, "p", model="openai:small"))] == ["02"]


def test_the_oldest_runs_go_with_their_cases(history: History) -> None:
    for day in range(1, 6):
        history.add(make_run(day, "pp"), keep=3)
    assert [run.started[8:10] for run in history.read_runs()] == ["03", "04", "05"]
    with sqlite3.connect(history.path) as database:
        assert database.execute("select count(*) from cases").fetchone() == (6,)


def test_histories_of_several_machines_are_merged(history: History, tmp_path: Path) -> None:
    other = History(tmp_path / "other.sqlite")
    history.add(make_run(1, "pf"))
    for day in (1, 2, 3):
        other.add(make_run(day, "pf"))
    assert history.merge(other) == 2
    assert history.merge(other) == 0
    assert [len(run.cases) for run in history.read_runs()] == [2, 2, 2]


def test_a_history_that_can_not_be_read_is_not_merged(history: History, tmp_path: Path) -> None:
    """Its rows would make the other one unreadable, too."""
    other = History(tmp_path / "other.sqlite")
    history.add(make_run(1, "pf"))
    other.add(make_run(2, "pf"))
    with sqlite3.connect(other.path) as database:
        database.execute("update cases set passed = 'x'")
    with pytest.raises(UsageError, match="not readable as a history of evalkit"):
        history.merge(other)
    assert [run.started[8:10] for run in history.read_runs()] == ["01"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"shard": "1/2"}, "shard 1/2 alone is no run of the suite; join all shards with `evalkit merge`"),
        ({"interrupted": True}, "a history holds whole runs, and this one was interrupted"),
        ({"collected": 9}, "a history holds whole runs, and this one has 2 of the suite's cases"),
    ],
)
def test_a_part_of_the_suite_is_no_run_of_it(history: History, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        history.add(make_run(1, "pp", **fields))
    assert str(caught.value) == message
    assert not history.path.exists()


def test_reading_changes_nothing(history: History) -> None:
    history.add(make_run(1, "p"))
    before = history.path.read_bytes()
    history.read_runs()
    assert history.path.read_bytes() == before


def test_two_processes_may_begin_a_history_at_once(history: History) -> None:
    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(lambda day: history.add(make_run(day, "pf")), range(1, 9)))
    assert len(history.read_runs()) == 8


def test_names_that_are_no_unicode_are_escaped(history: History) -> None:
    run = make_run(1, "p", branch="fix-\udcff")
    verdict = replace(run.verdicts[0], case_id="a\udcff")
    assert history.add(replace(run, verdicts=(verdict,), selected=("a\udcff",)))
    (kept,) = history.read_runs()
    assert (kept.branch, list(kept.cases)) == ("fix-\\udcff", ["a\\udcff"])


def test_another_file_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "shop.sqlite"
    with sqlite3.connect(path) as database:
        database.execute("create table orders (id)")
    database.close()
    before = path.read_bytes()
    with pytest.raises(UsageError, match=r"a database, and no history of evalkit; name another file"):
        History(path).add(make_run(1, "p"))
    assert path.read_bytes() == before
    path.write_text("no database at all, but text " * 50)
    with pytest.raises(UsageError, match="not readable as a history of evalkit: file is not a database"):
        History(path).read_runs()
    with pytest.raises(
        UsageError, match=r"none\.sqlite: there is no such history; `pytest --evalkit --evalkit-history="
    ):
        History(tmp_path / "none.sqlite").read_runs()


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("update cases set passed = 'many'", "passed"),
        ("update cases set passed = 3", "3 of 1 runs passed"),
        ("update cases set elapsed_ms = null", "elapsed_ms"),
        ("update cases set elapsed_ms = 9e999", "elapsed_ms inf or cost_usd 0.0 is not finite"),
        ("update cases set status = x'ff'", "status"),
        ("update runs set wall_s = 'long'", "wall_s"),
        ("update runs set started = null", "started"),
        ("drop table cases", "something else than evalkit's two tables"),
        ("alter table cases add column extra", "something else than evalkit's two tables"),
        ("create trigger more after insert on runs begin delete from runs; end", "something else than evalkit's"),
        (
            "alter table cases rename to kept;"
            "create view cases as with recursive n(i) as (select 1 union all select i from n) select * from n",
            "something else than evalkit's two tables",
        ),
    ],
)
def test_a_history_with_other_contents_is_refused(history: History, statement: str, message: str) -> None:
    """SQLite keeps any value in any column, and a view may never end."""
    history.add(make_run(1, "p"))
    with closing(sqlite3.connect(history.path)) as database:
        database.executescript(statement)
    with pytest.raises(UsageError, match=re.escape(str(history.path)) + f": .*{message}"):
        history.read_runs()


def test_cases_that_changed_are_told_from_those_that_stay_as_they_were(history: History) -> None:
    """a is fine, b breaks, c becomes flaky, d recovers, e stays broken, f is new."""
    for day in range(1, 11):
        history.add(make_run(day, "pppff"))
    for day, statuses in ((11, "pfpppp"), (12, "pffpfp"), (13, "pfppfp"), (14, "pffpfp")):
        history.add(make_run(day, statuses.replace("p", "p")))
    trends = {trend.case_id: trend for trend in find_trends(history.read_runs(), recent=4)}

    kinds = {case_id: trend.kind for case_id, trend in trends.items()}
    assert kinds == {
        "a": "still_clean", "b": "newly_broken", "c": "newly_flaky", "d": "fixed", "e": "less_broken", "f": "new"
    }  # fmt: skip
    assert (trends["b"].before, trends["b"].recent, trends["b"].is_significant) == ((10, 10), (0, 4), True)
    assert (trends["c"].recent, trends["c"].is_significant, trends["c"].since[:10]) == ((2, 4), False, "2026-11-12")

    lines = list(describe_history(history.read_runs(), recent=4, today=TODAY))
    assert lines[:2] == [
        "run               commit    branch  model    passed  failed  errors     rate   time  cost",
        "2026-11-14 08:00  00000000  main    offline       3       3       0     50 %  1.5 s     -",
    ]
    assert "\nnewly broken (1 case; the last 4 runs):" in lines
    assert "  b: 0 of 4 passed, 10 of 10 before, more than luck; fails since 00000000" in lines
    assert "  c: 2 of 4 passed, 10 of 10 before" in lines
    assert "\nrecovered (1 case; the last 4 runs):" in lines
    assert lines[-2:] == [
        "  c\n    xfail: 'flaky since 2026-11-12: 2 of 4 passed'\n    until: 2026-12-07",
        "  e\n    xfail: 'flaky since 2026-11-12: 1 of 4 passed'\n    until: 2026-12-07",
    ]


def test_an_empty_selection_says_so(history: History) -> None:
    history.add(make_run(1, "p"))
    assert list(describe_history(history.read_runs(branch="none"), today=TODAY)) == [
        "no run of that kind is in the history"
    ]


def describe(history: History) -> str:
    return "\n".join(describe_history(history.read_runs(), today=TODAY))


def test_a_case_that_a_branch_broke_is_not_flaky(history: History) -> None:
    """It passes on one branch and fails on the other."""
    for day, (branch, status) in enumerate([("main", "p"), ("fix", "f"), ("main", "p"), ("fix", "f")], 1):
        history.add(make_run(day, status, branch=branch))
    assert "quarantine" not in describe(history)
    history.add(make_run(5, "f", branch="main"))
    assert "quarantine" not in describe(history)  # main broke it
    history.add(make_run(6, "p", branch="main"))
    assert "xfail: 'flaky since 2026-11-02: 2 of 5 passed'" in describe(history)


def test_a_case_that_a_commit_broke_or_mended_is_not_flaky(history: History) -> None:
    """a breaks in the fourth of the recent runs, b recovers in the second, c fails once, and d some of its repeats."""
    for day, statuses in enumerate(["pfpp", "pfpp", "pfpp", "pfpp", "pppp", "ppfp", "fpp"], 1):
        history.add(make_run(day, f"{statuses:p<4}", metadata={"commit": f"{day}" * 40, "branch": "main"}))
    repeated = make_run(8, "fppf", metadata={"commit": None, "branch": "main"})
    runs = tuple(Verdict(status=status) for status in ("passed", "failed"))
    history.add(replace(repeated, verdicts=(*repeated.verdicts[:3], replace(repeated.verdicts[3], runs=runs))))
    lines = list(describe_history(history.read_runs(), today=TODAY))
    start = next(number for number, line in enumerate(lines) if line.startswith("\nnewly"))
    assert lines[start:] == [
        "\nnewly broken (1 case; the last 5 runs):",
        "  a: 3 of 5 passed, 3 of 3 before; fails since 77777777",
        "\nnewly flaky (2 cases; the last 5 runs):",
        "  c: 4 of 5 passed, 3 of 3 before",
        "  d: 5 of 6 passed, 3 of 3 before",
        "\nrecovered (1 case; the last 5 runs):",
        "  b: 4 of 5 passed, 0 of 3 before; passes since 55555555",
        "\na quarantine would leave these out of the gate for a while; it is yours to set:",
        "  c\n    xfail: 'flaky since 2026-11-06: 4 of 5 passed'\n    until: 2026-12-07",
        "  d\n    xfail: 'flaky since 2026-11-08: 5 of 6 passed'\n    until: 2026-12-07",
    ]


def test_a_case_that_breaks_in_a_short_history_is_listed(history: History) -> None:
    for day, status in enumerate("ppf", 1):
        history.add(make_run(day, status))
    assert "  a: 2 of 3 passed, none before; fails since 00000000" in describe(history)


def test_runs_of_several_branches_are_named(history: History) -> None:
    for day, branch in enumerate(["main", "main", "fix", "main"], 1):
        history.add(make_run(day, "p", branch=branch))
    assert "the runs are of several branches (main, fix), which may differ; --branch looks at one" in describe(history)
    assert "several" not in "\n".join(describe_history(history.read_runs(branch="main"), today=TODAY))


def test_a_row_is_put_in_quarantine_where_it_stands(history: History) -> None:
    for day, status in enumerate("pfpf", 1):
        run = make_run(day, status)
        (verdict,) = run.verdicts
        history.add(
            replace(run, verdicts=(replace(verdict, case_id="a_001.yaml[one]"),), selected=("a_001.yaml[one]",))
        )
    assert "  a_001.yaml[one] (in its row; in the case it would hold for all rows)\n    xfail: " in describe(history)


def test_a_case_that_must_pass_is_not_proposed_for_quarantine(history: History) -> None:
    for day, status in enumerate("pfpf", 1):
        run = make_run(day, status)
        history.add(replace(run, verdicts=(replace(run.verdicts[0], must_pass=True),)))
    assert "quarantine" not in describe(history)


def test_runs_with_another_model_are_shown_and_not_compared(history: History) -> None:
    for day in range(1, 7):
        history.add(make_run(day, "p"))
    for day in range(7, 10):
        history.add(make_run(day, "f", model="gemini:m"))
    text = describe(history)
    assert "compared are the 3 runs with gemini:m, not the 6 of others (--model)" in text
    assert "newly broken" not in text


def test_a_run_of_a_machine_whose_clock_is_ahead_is_named(history: History) -> None:
    history.add(make_run(1, "p"))
    history.add(make_run(2, "p", started="2031-01-01T08:00:00+00:00"))
    expected = "the last run began at 2031-01-01T08:00, which is yet to come: the clock of its machine was wrong"
    assert expected in describe(history)
