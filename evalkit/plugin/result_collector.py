"""Keeping the results of a session, in the one process that sees them all: journal, gate, exit status, run file."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Sequence
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import evalkit
from evalkit.errors import BudgetSpentError
from evalkit.gate.decision import decide_outcomes
from evalkit.gate.outcomes import CaseOutcome, build_outcome
from evalkit.model.codec import encode
from evalkit.model.run import GateDecision, Run, Selection
from evalkit.model.verdict import ERROR, FAILED, NOT_RUN, PASSED, Reason
from evalkit.plugin.batches import EXCHANGE_KEY, WorkerExchange, parse_case_id
from evalkit.plugin.capture import UNATTRIBUTED_ATTRIBUTE, UnattributedOutput
from evalkit.plugin.case_runner import (
    RESUMED_KEY,
    VERDICT_ATTRIBUTE,
    CaseRunner,
    WireVerdict,
    is_logging_live,
    is_one_at_a_time,
)
from evalkit.plugin.collection import get_case_id
from evalkit.plugin.commit import find_commit
from evalkit.plugin.configuration import IS_PARTIAL, SELECTION, Configuration, is_listing, locate_ledger
from evalkit.plugin.publish import build_annotations, publish, read_baseline
from evalkit.plugin.terminal import Display
from evalkit.plugin.verdicts import apply_verdict_to_report
from evalkit.reports.run_file import Journal, read_journal, write_run
from evalkit.reports.serialization import from_line, to_line
from evalkit.stats.accounting import Accounting, Tally

if TYPE_CHECKING:
    from evalkit.plugin.terminal import ProgressLine


SHORTEST_RUN = 50  # cases; up to so many, pytest's own progress says enough
_GATED_STATUSES = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
_NO_TESTS = pytest.ExitCode.NO_TESTS_COLLECTED


class ResultCollector:
    """The hooks of the process that keeps the results: the only one, or the controller of xdist."""

    def __init__(self, config: pytest.Config, configuration: Configuration, runner: CaseRunner) -> None:
        self._config = config
        self._configuration = configuration
        self._runner = runner
        self._display = Display(config, configuration)
        self._files = SessionFiles(config, configuration)
        self._outcomes: dict[str, CaseOutcome] = {}
        self._tally = Tally()
        self._unpaid: list[str] = []  # why the cases were not run for which nothing was left to spend
        self._cases_with_unused_mocks: dict[str, None] = {}  # passed cases with mocks that no call used
        self._ledger: Path | None = None  # where the workers of xdist book what they spend
        self._failed_reports = 0  # of cases; any further failure is of something else
        self._case_ids_by_node: dict[
            str, str
        ] = {}  # under xdist: node ids of the cases that a worker collected -> case ids
        self._collected_count = 0
        # Now, and not when it is needed: it may be the run file that this session writes.
        self._baseline_outcomes, self._baseline = read_baseline(configuration)
        self._decision: GateDecision | None = None
        self._progress: ProgressLine | None = None
        self._annotations: list[str] = []
        runner.resumed_lines.update(self._files.read_resumable())
        self._exchange = WorkerExchange()
        self._is_batched = configuration.concurrency > 1 and not is_one_at_a_time(config)
        self._case_verdicts = CaseVerdicts()
        self._unattributed = UnattributedOutput(config)
        config.pluginmanager.register(PassedTracesFirst(self), "evalkit-passed")

    # What is selected, and what is handed to workers

    def pytest_report_header(self) -> list[str]:
        model, grader = self._configuration.settings.model, self._configuration.settings.grader
        grades = f"; {grader.partition('?')[0]} grades what has no recorded grade" if grader else ""
        lines = [
            f"evalkit {evalkit.__version__}: "
            f"{f'live model {model}' if model else 'offline, models from cassettes'}{grades}"
        ]
        if self._runner.resumed_lines:
            lines.append(f"evalkit: resuming, {len(self._runner.resumed_lines)} verdicts of the run before are kept")
        elif self._configuration.resume:
            lines.append("evalkit: nothing to resume, the run before was complete")
        return lines

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput[RESUMED_KEY] = self._runner.resumed_lines
        self._ledger = locate_ledger(self._configuration.results, node.workerinput["testrunuid"])
        node.workerinput[EXCHANGE_KEY] = str(self._exchange.folder)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> object:
        """Whole buckets, unless another way of distribution is asked for or cases run one at a time."""
        from evalkit.plugin.xdist_scheduling import BY_SCOPE, BatchScheduling

        if (by_scope := BY_SCOPE.get(config.getoption("dist"))) is not None:
            return by_scope(config, log)
        if not self._is_batched or config.getoption("dist") != "load":
            return None
        return BatchScheduling(config, log, self._exchange, lambda node_id: parse_case_id(node_id) is not None)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any, ids: Sequence[str]) -> None:
        case_ids = self._exchange.read_marked()
        pairs = ((node_id, parse_case_id(node_id) or case_ids.get(node_id)) for node_id in ids)
        self._case_ids_by_node = {node_id: case_id for node_id, case_id in pairs if case_id is not None}
        self._show_progress(len(self._case_ids_by_node))

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        output = getattr(node, "workeroutput", {}).get("evalkit")
        if output:
            self._collected_count = max(self._collected_count, output["collected"])

    def _list_selected(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self._runner.selected_ids or self._case_ids_by_node.values()))

    # What comes in

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        wire = report.__dict__.pop(VERDICT_ATTRIBUTE, None)
        if wire is not None:
            self._record(wire if isinstance(wire, WireVerdict) else WireVerdict(wire, from_line(wire)), report)
        if UNATTRIBUTED_ATTRIBUTE in report.__dict__:
            self._unattributed.collect(report)

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_handlecrashitem(self, crashitem: str, report: pytest.TestReport, sched: Any) -> None:
        case_id = self._case_ids_by_node.get(crashitem)
        if case_id is not None:
            reason = Reason(code="crashed", message=f"{report.longrepr}: the process of the agent died")
            verdict = self._runner.build_unmeasured_verdict(case_id, reason)
            report.location = (case_id, None, crashitem.partition("::")[2])
            apply_verdict_to_report(report, verdict)
            self._record(self._runner.serialize(verdict), report)

    def _record(self, wire_verdict: WireVerdict, report: pytest.TestReport) -> None:
        verdict = wire_verdict.verdict
        effective = self._case_verdicts.record(wire_verdict, report.nodeid)
        self._outcomes[verdict.case_id] = build_outcome(effective.verdict)
        self._tally.add(verdict)
        if verdict.status == NOT_RUN:
            self._unpaid += [reason.message for reason in verdict.reasons if reason.code == BudgetSpentError.code]
        if verdict.status == PASSED and verdict.transcript.unused_mocks and verdict.transcript.calls:
            self._cases_with_unused_mocks[verdict.case_id] = None
        self._failed_reports += report.failed
        if self._progress is not None:
            self._progress.count(report, passed=verdict.status == PASSED)
        if effective.verdict.status == PASSED and self._shows_passed:
            self._display.prepare_passed(effective.verdict)
        if verdict.status != NOT_RUN and report.longrepr is not None:
            from evalkit.plugin.verdicts import has_own_text

            if parse_case_id(report.nodeid) is not None or not has_own_text(verdict, report):
                report.longrepr = self._display.build_trace(verdict)  # type: ignore[assignment]  # pytest asks for toterminal only
        try:
            self._open_journal().append(verdict.case_id, effective.line)
        except OSError as error:  # the disk is full: the run goes on, and says so
            self._files.trouble.append(f"{verdict.case_id} is in neither the journal nor the run file: {error}")

    @cached_property
    def _shows_passed(self) -> bool:
        return self._display.is_showing_passed(len(self._list_selected()))

    def _open_journal(self) -> Journal:
        if self._files.journal is not None:
            return self._files.journal
        selected = self._list_selected()
        return self._files.open(
            selected, max(len(selected), self._collected_count), self._runner.resumed_lines.values()
        )

    # What comes out

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._display.prepare(session)
        self._show_progress(sum(get_case_id(item) is not None for item in session.items))

    def _show_progress(self, total: int) -> None:
        """On a terminal, at the usual verbosity, for a run that is long enough, and where nothing else is printed."""
        reporter: Any = self._config.pluginmanager.get_plugin("terminalreporter")
        usual = self._config.getoption("verbose", 0) == 0 and self._config.getoption("capture", "fd") != "no"
        is_wanted = total > SHORTEST_RUN and usual and getattr(reporter, "isatty", False)
        if self._progress is None and is_wanted and not is_logging_live(self._config):
            from evalkit.plugin.terminal import ProgressLine

            self._progress = ProgressLine(self._display.stream, total)
            self._config.pluginmanager.register(self._progress, "evalkit-progress")

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if is_listing(self._config):
            return
        self._display.sort_reports(self._case_ids_by_node)
        selected, selection = self._list_selected(), self._files.selection
        collected = max(self._runner.collected_count, self._collected_count, len(selected))
        # Nothing collected, or all deselected, is pytest's to tell; that nothing fell to this shard is not.
        is_ours = exitstatus in _GATED_STATUSES or (
            exitstatus == _NO_TESTS and selection is not None and selection.count
        )
        self._decision = decide_outcomes(
            list(self._outcomes.values()),
            self._configuration.policy,
            selected=selected,
            collected=collected,
            part=self._files.is_partial,
            shard=self._files.shard,
            total=None if selection is None else selection.count,
            baseline=self._baseline_outcomes,
        )
        interrupted = exitstatus not in (*_GATED_STATUSES, _NO_TESTS)
        is_written = self._files.write(
            self._decision, self._tally.to_accounting(), selected=selected, collected=collected, interrupted=interrupted
        )
        if is_written and selected:
            self._files.trouble += publish(self._configuration, self._decision, self._baseline)
            self._annotations = build_annotations(self._configuration)
        if is_ours and session.exitstatus == exitstatus:
            others_failed = session.testsfailed > self._failed_reports
            session.exitstatus = 1 if others_failed else self._decision.exit_status

    def show_passed_first(self, reporter: pytest.TerminalReporter) -> None:
        """Before pytest tells of failures."""
        if self._decision is not None:
            self._display.write_passed_first(reporter, self._outcomes, self._list_selected(), self._files.journal)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter, exitstatus: int) -> None:
        self._unattributed.show(terminalreporter)
        if self._decision is not None and exitstatus != pytest.ExitCode.USAGE_ERROR:
            selected = self._list_selected()
            self._display.write_summary(
                terminalreporter, self._decision, self._outcomes, selected, self._files.journal, self._files.trouble
            )
            measured = any(outcome.status in (PASSED, FAILED) for outcome in self._outcomes.values())
            self._display.write_accounting(
                terminalreporter, self._tally.to_accounting(), self._unpaid, is_measured=measured
            )
            self._display.write_unused_mocks(
                terminalreporter, [case_id for case_id in selected if case_id in self._cases_with_unused_mocks]
            )
            if self._outcomes and not self._is_complete():  # interrupted, or -x
                terminalreporter.write_line("pytest --evalkit --evalkit-resume runs the cases that have no verdict yet")
            for line in self._annotations:
                terminalreporter.write_line(line)

    def pytest_unconfigure(self) -> None:
        if self._ledger is not None:
            self._ledger.unlink(missing_ok=True)
        self._exchange.remove()
        self._files.close(complete=self._is_complete())

    def _is_complete(self) -> bool:
        """Whether each selected case has its verdict, and the run that is resumed told of no other case there is."""
        selected = self._list_selected()
        other_ids = set(self._runner.resumed_lines).difference(selected)
        return all(case_id in self._outcomes for case_id in selected) and not any(
            (self._configuration.root / case_id).exists() for case_id in other_ids
        )


class PassedTracesFirst:
    """The place ahead of pytest's own summary; that of `Keeper` is behind its failures."""

    def __init__(self, collector: ResultCollector) -> None:
        self._collector = collector

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> Generator[None, None, None]:
        self._collector.show_passed_first(terminalreporter)
        yield


# A case that several tests run counts once, with the worst of their verdicts.

SEVERITY = (NOT_RUN, PASSED, ERROR, FAILED)


class CaseVerdicts:
    """What each test last said of a case. Case files are one test each, and need no keeping."""

    def __init__(self) -> None:
        self._by_case: dict[str, dict[str, WireVerdict]] = {}

    def record(self, verdict: WireVerdict, node_id: str) -> WireVerdict:
        """What counts of the case, now that the test `node_id` says `told`."""
        if parse_case_id(node_id) is not None:
            return verdict
        by_test = self._by_case.setdefault(verdict.verdict.case_id, {})
        by_test[node_id] = verdict
        return max(by_test.values(), key=lambda one: SEVERITY.index(one.verdict.status))


# The files of a session: the journal, written while verdicts come in, and the run file at the end.

# Of a run's settings.
_COMPARED_SETTINGS = ("temperature", "seed", "deadline_s", "max_iterations", "strict_mocks", "record", "grader")


class SessionFiles:
    """`trouble` gathers a line for everything that could not be written: the run goes on without."""

    def __init__(self, config: pytest.Config, configuration: Configuration) -> None:
        self._config = config
        self._configuration = configuration
        self._started = datetime.now(UTC).isoformat()
        self._clock = time.perf_counter()
        self._path = configuration.results.with_suffix(".journal.jsonl")
        self.journal: Journal | None = None  # from the first verdict on
        self.trouble: list[str] = []

    @property
    def selection(self) -> Selection | None:
        """Of which whole this session runs a part."""
        return self._config.stash.get(SELECTION, None)

    @property
    def is_partial(self) -> bool:
        """Whether there are cases that paths on the command line left out of sight."""
        return self._config.stash.get(IS_PARTIAL, False)

    @property
    def shard(self) -> str | None:
        """Which part, as in "2/8"."""
        return None if self._configuration.shard is None else str(self._configuration.shard)

    def read_resumable(self) -> dict[str, str]:
        """Lines of the session before, by case id, if it is to be resumed and has left any."""
        if not self._configuration.resume or not self._path.is_file():
            return {}
        measured = (v for v in read_journal(self._path).verdicts if v.status not in (ERROR, NOT_RUN))
        return {verdict.case_id: to_line(verdict) for verdict in measured}

    def open(self, selected: tuple[str, ...], collected: int, resumed: Iterable[str]) -> Journal:
        """Begin the journal with the lines that are kept of the session before."""
        selection = self.selection
        head: dict[str, Any] = {
            "started": self._started,
            "selected": selected,
            "evalkit": evalkit.__version__,
            "metadata": self._describe_circumstances(),
            "shard": self.shard,
            "selection": None if selection is None else encode(selection),
        }
        try:
            self.journal = Journal(self._path, {**head, "collected": collected}, resumed)
            self._keep_out_of_git()
        except OSError as error:
            self.trouble.append(f"no journal is kept: {error}")
            self.journal = Journal(None, head)
        return self.journal

    def write(
        self,
        decision: GateDecision,
        accounting: Accounting,
        *,
        selected: tuple[str, ...],
        collected: int,
        interrupted: bool,
    ) -> bool:
        """Write the run file; whether that went well."""
        run = Run(
            collected=collected,
            selected=selected,
            started=self._started,
            wall_s=round(time.perf_counter() - self._clock, 3),
            evalkit=evalkit.__version__,
            interrupted=interrupted,
            shard=self.shard,
            selection=self.selection,
            metadata={"gate": decision, "accounting": accounting.to_json(), **self._describe_circumstances()},
        )
        try:
            write_run(
                self._configuration.results, run, () if self.journal is None else self.journal.iter_lines(selected)
            )
            self._keep_out_of_git()
        except OSError as error:
            self.trouble.append(f"the run file was not written: {error}")
            return False
        return True

    def close(self, *, complete: bool) -> None:
        """Of a complete run everything is in the run file, and the journal can go."""
        if self.journal is not None:
            self.journal.close(remove=complete and not self.trouble)

    def _describe_circumstances(self) -> dict[str, Any]:
        """What must be the same of runs that are joined."""
        settings = self._configuration.settings
        return {
            "model": settings.model,
            "part": self.is_partial,
            "commit": find_commit(self._configuration.root),
            "settings": {
                **{name: getattr(settings, name) for name in _COMPARED_SETTINGS},
                "agent": self._configuration.agent,
                "faults": self._configuration.faults,
            },
        }

    def _keep_out_of_git(self) -> None:
        folder = self._configuration.results.parent
        if folder.name == ".evalkit" and not (folder / ".gitignore").exists():
            (folder / ".gitignore").write_text("*\n", "ascii")
