"""The history of a suite: a small SQLite file with the outcome of every case in every run, and the trends in it.

It informs people and decides nothing: no gate reads it, and no quarantine is set by it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import date, timedelta
from fractions import Fraction
from itertools import pairwise
from math import isfinite
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct, ValidationError, convert, field

from evalkit.errors import UsageError
from evalkit.gate.outcomes import CaseOutcome, build_outcomes
from evalkit.records.case import split_case_id
from evalkit.records.run import Run
from evalkit.records.verdict import ERROR, FAILED, PASSED
from evalkit.stats.comparison import classify
from evalkit.text.format import escape_controls, format_case_count, format_dollars, format_rate

if TYPE_CHECKING:
    import sqlite3

KEPT_RUNS = 500
_APPLICATION = 0x65766B74  # "evkt" in SQLite's field for the application that owns a file
_VERSION = 1
_TABLES = (
    f"pragma application_id = {_APPLICATION}",
    f"pragma user_version = {_VERSION}",
    """create table if not exists runs (
        id text primary key, started text, commit_id text, branch text, model text, evalkit text, gate text, wall_s real
    ) without rowid""",
    """create table if not exists cases (
        run text references runs on delete cascade, case_id text, status text, passed integer, measured integer,
        elapsed_ms real, cost_usd real, must_pass integer, quarantined integer, codes text,
        primary key (run, case_id)
    ) without rowid""",
)


class CaseRecord(Struct, frozen=True):
    """The outcome of a case in a run; the fields are the columns of the table `cases`."""

    run: str
    case_id: str
    status: str
    passed: int
    measured: int
    elapsed_ms: float
    cost_usd: float | None
    must_pass: bool
    quarantined: bool
    codes: str  # of its reasons, between spaces

    def __post_init__(self) -> None:
        if not 0 <= self.passed <= self.measured:
            raise ValueError(f"{self.passed} of {self.measured} runs passed")
        if not isfinite(self.elapsed_ms + (self.cost_usd or 0)):
            raise ValueError(f"elapsed_ms {self.elapsed_ms} or cost_usd {self.cost_usd} is not finite")


class HistoryRun(Struct, frozen=True):
    """A run; the fields but the last, `cases` by id, are the columns of the table `runs`."""

    id: str
    started: str  # ISO 8601, UTC
    commit: str | None
    branch: str | None
    model: str | None
    evalkit: str
    gate: str | None
    wall_s: float
    cases: dict[str, CaseRecord] = field(default_factory=dict)

    def count(self, status: str) -> int:
        """Count the cases of a status, but for those in quarantine, which a gate leaves out too."""
        return sum(case.status == status and not case.quarantined for case in self.cases.values())

    def compute_rate(self) -> Fraction | None:
        """Return the pass rate in percent; None if no case that counts was measured."""
        passed, failed = self.count(PASSED), self.count(FAILED)
        return Fraction(100 * passed, passed + failed) if passed + failed else None

    def sum_elapsed_ms(self) -> float:
        return sum(case.elapsed_ms for case in self.cases.values())

    def sum_cost_usd(self) -> float | None:
        """Return the cost of all cases; None if one has no price, or nothing cost anything."""
        costs = [case.cost_usd for case in self.cases.values() if case.cost_usd is not None]
        return sum(costs) or None if len(costs) == len(self.cases) else None


class CaseTrend(Struct, frozen=True, kw_only=True):
    """The results of a case lately, beside what it did before. Tallies are (passed runs, measured runs)."""

    case_id: str
    kind: str  # of `stats.comparison.TallyChange`
    is_significant: bool  # among all cases
    before: tuple[int, int]
    recent: tuple[int, int]
    since: str  # when the first of the recent runs began in which it did not pass; "" if it passed in all
    is_quarantined: bool
    turning_point: str = ""  # the commit (or time) of the run from which on it always ended otherwise than before

    def describe(self) -> str:
        """Return both tallies in words, whether they differ by more than luck, and when that began."""
        luck = ", more than luck" if self.is_significant else ""
        verb = "fails" if self.kind == "newly_broken" else "passes"
        began = f"; {verb} since {escape_controls(self.turning_point)}" if self.turning_point else ""
        return f"{_format_tally(self.recent)} passed, {_format_tally(self.before)} before{luck}{began}"


def explain_part(run: Run) -> str | None:
    """Return why `run` is no run of the whole suite; None if it is one."""
    if run.shard is not None:
        return f"shard {run.shard} alone is no run of the suite; join all shards with `evalkit merge`"
    if run.interrupted:
        return "a history holds whole runs, and this one was interrupted"
    if run.metadata.get("part") or len(run.selected) < run.collected:
        return f"a history holds whole runs, and this one has {len(run.selected)} of the suite's cases"
    return None


class History:
    """The file at `path`, which is made where there is none. Raises UsageError for a file that is no history."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, run: Run, outcomes: Iterable[CaseOutcome] | None = None, *, keep: int = KEPT_RUNS) -> bool:
        """Add a run, unless it is there; the oldest above `keep` go. Return whether it was added.

        `outcomes` are those of its verdicts, for a caller that does not have all of them in memory.
        Raises UsageError for a run of a part of the suite: cases that were left out would look as if they were gone.
        """
        if (part := explain_part(run)) is not None:
            raise UsageError(part)
        metadata = run.metadata
        identity = [run.started, metadata.get("commit"), metadata.get("model"), *sorted(run.selected)]
        key = hashlib.sha256("\n".join(map(str, identity)).encode("utf-8", "surrogatepass")).hexdigest()[:32]
        gate = metadata.get("gate")
        texts = [metadata.get("commit"), metadata.get("branch"), metadata.get("model")]
        row = (
            key,
            run.started,
            *(text if isinstance(text, str) else None for text in texts),
            run.evalkit,
            str(gate.get("status")) if isinstance(gate, Mapping) else None,
            run.wall_s,
        )
        cases = [
            (
                *(key, outcome.case_id, outcome.status, outcome.runs_passed, outcome.runs_measured),
                *(outcome.elapsed_ms, outcome.cost_usd, outcome.must_pass, outcome.quarantined),
                " ".join(outcome.codes),
            )
            for outcome in (build_outcomes(run) if outcomes is None else outcomes)
        ]
        with self._open() as database:
            return _insert(database, [row], cases, keep) > 0

    def merge(self, other: History, *, keep: int = KEPT_RUNS) -> int:
        """Add the runs of another history that are not there. Return their number."""
        with other._open(is_new=False) as database:
            runs = database.execute("select * from runs").fetchall()
            cases = database.execute("select * from cases").fetchall()
            for row in runs:  # what can't be read would make this history unreadable, too
                _read(HistoryRun, row)
            for row in cases:
                _read(CaseRecord, row)
        with self._open() as database:
            return _insert(database, runs, cases, keep)

    def read_runs(self, *, branch: str | None = None, model: str | None = None, last: int = 20) -> list[HistoryRun]:
        """Return the `last` runs, the oldest first; of a branch or a model, if one is given."""
        condition = "(:branch is null or branch = :branch) and (:model is null or model = :model)"
        return self._select_runs(condition, {"branch": branch, "model": model}, last)

    def read_runs_up_to(self, run: Run, *, last: int = 20) -> list[HistoryRun]:
        """Return the `last` runs with the model of `run` (or offline, as it was) up to itself, the oldest first."""
        model = run.metadata.get("model")
        parameters = {"model": model if isinstance(model, str) else None, "started": run.started}
        return self._select_runs("model is :model and started <= :started", parameters, last)

    def _select_runs(self, condition: str, parameters: Mapping[str, str | None], last: int) -> list[HistoryRun]:
        query = f"select * from runs where {condition} order by started desc, id limit :last"  # noqa: S608 - our own
        with self._open(is_new=False) as database:
            rows = database.execute(query, {**parameters, "last": last}).fetchall()
            runs = [_read(HistoryRun, row) for row in reversed(rows)]
            for run in runs:
                for row in database.execute("select * from cases where run = ? order by case_id", (run.id,)):
                    case = _read(CaseRecord, row)
                    run.cases[case.case_id] = case
        return runs

    @contextmanager
    def _open(self, *, is_new: bool = True) -> Iterator[sqlite3.Connection]:
        """Open the file for one transaction. Another process that writes is waited for."""
        import sqlite3  # most runs have no history

        if not is_new and not self.path.is_file():
            raise UsageError(
                f"{self.path}: there is no such history; `pytest --evalkit --evalkit-history={self.path}` begins one"
            )
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            connection = sqlite3.connect(self.path, timeout=30, isolation_level=None)
            with closing(connection) as database, database:
                database.execute("pragma foreign_keys = on")
                database.execute("begin immediate" if is_new else "begin")  # two processes may be the first at once
                owner = database.execute("pragma application_id").fetchone()[0]
                version = database.execute("pragma user_version").fetchone()[0]
                tables = database.execute("select count(*) from sqlite_master").fetchone()[0]
                if owner != _APPLICATION and tables:
                    raise UsageError(f"{self.path}: a database, and no history of evalkit; name another file")
                if version not in (0, _VERSION):
                    raise UsageError(f"{self.path}: version {version} of a history; this evalkit reads {_VERSION}")
                for statement in _TABLES if not version else ():
                    database.execute(statement)
                if _read_schema(database) != _compute_schema():  # views and triggers would run what they like
                    raise UsageError(f"{self.path}: holds something else than evalkit's two tables; name another file")
                yield database
        except (sqlite3.Error, ValidationError) as error:
            raise UsageError(f"{self.path}: not readable as a history of evalkit: {error}") from error


def _read_schema(database: sqlite3.Connection) -> list[tuple[object, ...]]:
    rows = database.execute("select type, name, sql from sqlite_master order by name")
    return [(kind, name, " ".join(str(sql).split())) for kind, name, sql in rows]


def _compute_schema() -> list[tuple[object, ...]]:
    import sqlite3  # most runs have no history

    with closing(sqlite3.connect(":memory:")) as database:
        for statement in _TABLES:
            database.execute(statement)
        return _read_schema(database)


R = TypeVar("R", HistoryRun, CaseRecord)


def _read(kind: type[R], row: Sequence[object]) -> R:
    """Build a record of a row. SQLite keeps values of any type in any column: ValidationError for another one."""
    return convert(dict(zip(kind.__struct_fields__, row, strict=False)), kind, strict=False)


def _insert(
    database: sqlite3.Connection, runs: Sequence[tuple[object, ...]], cases: Iterable[tuple[object, ...]], keep: int
) -> int:
    """Insert runs with their cases, remove the oldest above `keep`, and return how many runs are new."""
    known = {key for (key,) in database.execute("select id from runs")}
    new = [row for row in runs if row[0] not in known]
    keys = {row[0] for row in new}
    tables = ((new, "runs values (?, ?, ?, ?, ?, ?, ?, ?)"), (cases, "cases values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"))
    for rows, table in tables:
        for row in rows:
            if row[0] in keys:  # names of files and branches may be no Unicode, and SQLite's texts are
                texts = [v.encode("utf-8", "backslashreplace").decode() if isinstance(v, str) else v for v in row]
                database.execute(f"insert into {table}", texts)
    database.execute(
        "delete from runs where id not in (select id from runs order by started desc, id limit ?)", (keep,)
    )
    return len(new)


def find_trends(runs: Sequence[HistoryRun], recent: int = 5) -> list[CaseTrend]:
    """Compare the `recent` last of the runs with those before, case by case, for the cases of the last run.

    Fisher's exact test, adjusted for the number of cases, tells what is more than luck. A case that passed until one of
    the recent runs and has failed since is broken, not flaky, however many of them it passed.
    """
    before, now = runs[:-recent], runs[-recent:]
    tallies = [_sum_tallies(before), _sum_tallies(now)]
    last = runs[-1].cases if runs else {}
    changes = classify(tallies[0], {case_id: tallies[1][case_id] for case_id in last})
    trends = []
    for case_id, (change, is_significant) in changes.items():
        turn = find_turning_point(runs, case_id)
        turn = turn if turn in now else None
        trends.append(
            CaseTrend(
                case_id=case_id,
                kind=change.kind if turn is None else "fixed" if turn.cases[case_id].passed else "newly_broken",
                is_significant=is_significant,
                before=tallies[0].get(case_id, (0, 0)),
                recent=tallies[1][case_id],
                since=next((r.started for r in now if case_id in r.cases and r.cases[case_id].status == FAILED), ""),
                is_quarantined=last[case_id].quarantined,
                turning_point="" if turn is None else (turn.commit or "")[:8] or turn.started[:16].replace("T", " "),
            )
        )
    return trends


def find_turning_point(runs: Iterable[HistoryRun], case_id: str) -> HistoryRun | None:
    """Return the run from which on a case always failed and had always passed before, or the other way round.

    None if it changed never, more than once, or passed some of the repeats of a run.
    """
    measured = [(run, case) for run in runs if (case := run.cases.get(case_id)) is not None and case.measured]
    if any(0 < case.passed < case.measured for _, case in measured):
        return None
    turns = [run for (_, before), (run, now) in pairwise(measured) if bool(before.passed) != bool(now.passed)]
    return turns[0] if len(turns) == 1 else None


def _sum_tallies(runs: Iterable[HistoryRun]) -> dict[str, tuple[int, int]]:
    tallies: dict[str, tuple[int, int]] = {}
    for run in runs:
        for case in run.cases.values():
            passed, measured = tallies.get(case.case_id, (0, 0))
            tallies[case.case_id] = (passed + case.passed, measured + case.measured)
    return tallies


CHANGES = {  # headings of the kinds of trends that are listed; others are not
    "newly_broken": "newly broken",
    "newly_flaky": "newly flaky",
    "fixed": "recovered",
    "less_broken": "passes again at times",
    "still_broken": "still broken",
    "still_flaky": "still flaky",
}
_QUARANTINE_DAYS = 14


def group_changes(trends: Iterable[CaseTrend]) -> dict[str, list[CaseTrend]]:
    """Return the trends of cases that changed or never pass as a whole, by title, in the order of CHANGES."""
    groups: dict[str, list[CaseTrend]] = {title: [] for title in CHANGES.values()}
    for trend in trends:
        if trend.kind in CHANGES:
            groups[CHANGES[trend.kind]].append(trend)
    return {title: group for title, group in groups.items() if group}


def describe_span(number: int, recent: int) -> str:
    """Return in words which of `number` runs trends are about."""
    shown = "the last run" if recent == 1 else f"the last {recent} runs"
    return shown if number > recent else "all runs: none before to compare with"


def list_comparable(runs: Sequence[HistoryRun]) -> list[HistoryRun]:
    """Return the runs with the model of the last one: another model, or a replay, says nothing about its trends."""
    return [run for run in runs if run.model == runs[-1].model]


def propose_quarantines(
    trends: Iterable[CaseTrend], runs: Sequence[HistoryRun], today: date, recent: int = 5
) -> dict[str, str]:
    """Return the lines of YAML that would put a flaky case in quarantine for a while, by case.

    It is flaky if it passes and fails on one branch, by turns: one that a branch broke passes on the others, and one
    that a commit broke or fixed changed once. A case that must pass is not proposed.
    """
    until = (today + timedelta(days=_QUARANTINE_DAYS)).isoformat()
    flaky: set[str] = set()
    for branch in {run.branch for run in runs[-recent:]}:
        tallies = _sum_tallies(run for run in runs[-recent:] if run.branch == branch)
        mixed = [case_id for case_id, (passed, measured) in tallies.items() if 0 < passed < measured]
        of_branch = [run for run in runs if run.branch == branch]
        flaky.update(case_id for case_id in mixed if find_turning_point(of_branch, case_id) is None)
    last = runs[-1].cases if runs else {}
    return {
        t.case_id: f"xfail: 'flaky since {t.since[:10]}: {_format_tally(t.recent)} passed'\nuntil: {until}"
        for t in trends
        if t.case_id in flaky and t.since and not t.is_quarantined and not last[t.case_id].must_pass
    }


def describe_history(runs: Sequence[HistoryRun], *, recent: int = 5, today: date) -> Iterator[str]:
    """Yield the table of runs, the newest first, the cases that changed, and which might be put in quarantine."""
    if not runs:
        yield "no run of that kind is in the history"
        return
    rows: list[tuple[str, ...]] = [
        ("run", "commit", "branch", "model", "passed", "failed", "errors", "rate", "time", "cost")
    ]
    rows += [_describe_run(run) for run in reversed(runs)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        texts = [text.ljust(width) for text, width in zip(row[:4], widths[:4], strict=True)]
        numbers = [text.rjust(width) for text, width in zip(row[4:], widths[4:], strict=True)]
        yield "  ".join([*texts, *numbers])
    comparable = list_comparable(runs)
    if others := len(runs) - len(comparable):
        model = "without a live model" if runs[-1].model is None else f"with {runs[-1].model}"
        yield f"\ncompared are the {len(comparable)} runs {model}, not the {others} of others (--model)"
    if runs[-1].started[:10] > (today + timedelta(days=1)).isoformat():
        began = runs[-1].started[:16]
        yield f"\nthe last run began at {began}, which is yet to come: the clock of its machine was wrong"
    branches = dict.fromkeys(run.branch or "none" for run in comparable[-recent:])
    if len(branches) > 1:
        yield f"\nthe runs are of several branches ({', '.join(branches)}), which may differ; --branch looks at one"
    trends = find_trends(comparable, recent)
    span = describe_span(len(comparable), recent)
    for title, changed in group_changes(trends).items():
        yield f"\n{title} ({format_case_count(len(changed))}; {span}):"
        for trend in changed:
            yield f"  {trend.case_id}: {trend.describe()}"
    quarantines = propose_quarantines(trends, comparable, today, recent)
    if quarantines:
        yield "\na quarantine would leave these out of the gate for a while; it is yours to set:"
        for case_id, lines in quarantines.items():
            where = "" if split_case_id(case_id)[1] is None else " (in its row; in the case it would hold for all rows)"
            yield f"  {case_id}{where}\n" + indent(lines, "    ")


def _describe_run(run: HistoryRun) -> tuple[str, ...]:
    rate, cost = run.compute_rate(), run.sum_cost_usd()
    return (
        run.started[:16].replace("T", " "),
        (run.commit or "-")[:8],
        run.branch or "-",
        run.model or "offline",
        *(str(run.count(status)) for status in (PASSED, FAILED, ERROR)),
        "-" if rate is None else format_rate(rate),
        f"{run.sum_elapsed_ms() / 1000:.1f} s",
        "-" if cost is None else format_dollars(cost),
    )


def _format_tally(tally: tuple[int, int]) -> str:
    return f"{tally[0]} of {tally[1]}" if tally[1] else "none"
