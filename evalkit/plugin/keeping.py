"""Keeping the results of a session, in the one process that sees them all: journal, gate, exit status, run file."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import evalkit
from evalkit.errors import BudgetSpentError
from evalkit.gate.counts import Outcome, outcome_of
from evalkit.gate.decision import decide_outcomes
from evalkit.model.run import GateDecision
from evalkit.model.verdict import FAILED, NOT_RUN, PASSED, Reason
from evalkit.plugin.collection import case_id_of
from evalkit.plugin.configuration import Configuration, only_lists
from evalkit.plugin.display import Display
from evalkit.plugin.metering import ledger_of
from evalkit.plugin.neighbours import RENDEZVOUS, Rendezvous, case_of
from evalkit.plugin.publishing import annotation_lines, publish, read_baseline
from evalkit.plugin.running import RESUMED, WIRE, Runner, Told, one_at_a_time, shows_logs_live
from evalkit.plugin.sessionfiles import SessionFiles
from evalkit.plugin.shaping import shape
from evalkit.plugin.standing import Standing
from evalkit.plugin.stray import STRAY, StrayOutput
from evalkit.reports.journal import Journal
from evalkit.reports.wire import from_line
from evalkit.stats.accounting import Tally

if TYPE_CHECKING:
    from evalkit.plugin.progress import Progress

SHORTEST_RUN = 50  # cases; up to so many, pytest's own progress says enough
_OURS_TO_DECIDE = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
_NOTHING = pytest.ExitCode.NO_TESTS_COLLECTED


class Keeper:
    """The hooks of the process that keeps the results: the only one, or the controller of xdist."""

    def __init__(self, config: pytest.Config, configuration: Configuration, runner: Runner) -> None:
        self._config = config
        self._configuration = configuration
        self._runner = runner
        self._display = Display(config, configuration)
        self._files = SessionFiles(config, configuration)
        self._outcomes: dict[str, Outcome] = {}
        self._tally = Tally()
        self._unpaid: list[str] = []  # why the cases were not run for which nothing was left to spend
        self._with_unused: dict[str, None] = {}  # passed cases with mocks that no call used
        self._ledger: Path | None = None  # where the workers of xdist book what they spend
        self._failed_reports = 0  # of cases; any further failure is of something else
        self._wanted: dict[str, str] = {}  # under xdist: node ids of the cases that a worker collected -> case ids
        self._collected = 0
        # Now, and not when it is needed: it may be the run file that this session writes.
        self._before, self._baseline = read_baseline(configuration)
        self._decision: GateDecision | None = None
        self._progress: Progress | None = None
        self._annotations: list[str] = []
        runner.resumed.update(self._files.resumable())
        self._rendezvous = Rendezvous()
        self._by_buckets = configuration.concurrency > 1 and not one_at_a_time(config)
        self._standing = Standing()
        self._stray = StrayOutput(config)
        config.pluginmanager.register(PassedFirst(self), "evalkit-passed")

    # What is selected, and what is handed to workers

    def pytest_report_header(self) -> list[str]:
        model, grader = self._configuration.settings.model, self._configuration.settings.grader
        grades = f"; {grader.partition('?')[0]} grades what has no recorded grade" if grader else ""
        lines = [
            f"evalkit {evalkit.__version__}: "
            f"{f'live model {model}' if model else 'offline, models from cassettes'}{grades}"
        ]
        if self._runner.resumed:
            lines.append(f"evalkit: resuming, {len(self._runner.resumed)} verdicts of the run before are kept")
        elif self._configuration.resume:
            lines.append("evalkit: nothing to resume, the run before was complete")
        return lines

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput[RESUMED] = self._runner.resumed
        self._ledger = ledger_of(self._configuration.results, node.workerinput["testrunuid"])
        node.workerinput[RENDEZVOUS] = str(self._rendezvous.folder)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> object:
        """Whole buckets, unless another way of distribution is asked for or cases run one at a time."""
        from evalkit.plugin.buckets import BY_SCOPE, BucketScheduling

        if (by_scope := BY_SCOPE.get(config.getoption("dist"))) is not None:
            return by_scope(config, log)
        if not self._by_buckets or config.getoption("dist") != "load":
            return None
        return BucketScheduling(config, log, self._rendezvous, lambda node_id: case_of(node_id) is not None)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any, ids: Sequence[str]) -> None:
        marked = self._rendezvous.marked()
        found = ((node_id, case_of(node_id) or marked.get(node_id)) for node_id in ids)
        self._wanted = {node_id: case_id for node_id, case_id in found if case_id is not None}
        self._show_progress(len(self._wanted))

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        told = getattr(node, "workeroutput", {}).get("evalkit")
        if told:
            self._collected = max(self._collected, told["collected"])

    def _selected(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self._runner.selected or self._wanted.values()))

    # What comes in

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        told = report.__dict__.pop(WIRE, None)
        if told is not None:
            self._keep(told if isinstance(told, Told) else Told(told, from_line(told)), report)
        if STRAY in report.__dict__:
            self._stray.keep(report)

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_handlecrashitem(self, crashitem: str, report: pytest.TestReport, sched: Any) -> None:
        case_id = self._wanted.get(crashitem)
        if case_id is not None:
            reason = Reason(code="crashed", message=f"{report.longrepr}: the process of the agent died")
            verdict = self._runner.unmeasured(case_id, reason)
            report.location = (case_id, None, crashitem.partition("::")[2])
            shape(report, verdict)
            self._keep(self._runner.told(verdict), report)

    def _keep(self, told: Told, report: pytest.TestReport) -> None:
        verdict = told.verdict
        counts = self._standing.of(told, report.nodeid)
        self._outcomes[verdict.case_id] = outcome_of(counts.verdict)
        self._tally.add(verdict)
        if verdict.status == NOT_RUN:
            self._unpaid += [reason.message for reason in verdict.reasons if reason.code == BudgetSpentError.code]
        if verdict.status == PASSED and verdict.transcript.unused_mocks and verdict.transcript.calls:
            self._with_unused[verdict.case_id] = None
        self._failed_reports += report.failed
        if self._progress is not None:
            self._progress.told(report, passed=verdict.status == PASSED)
        if counts.verdict.status == PASSED and self._shows_passed:
            self._display.prepare_passed(counts.verdict)
        if verdict.status != NOT_RUN and report.longrepr is not None:
            from evalkit.plugin.markedverdicts import has_own_text

            if case_of(report.nodeid) is not None or not has_own_text(verdict, report):
                report.longrepr = self._display.trace(verdict)  # type: ignore[assignment]  # pytest asks for toterminal only
        try:
            self._opened_journal().append(verdict.case_id, counts.line)
        except OSError as error:  # the disk is full: the run goes on, and says so
            self._files.trouble.append(f"{verdict.case_id} is in neither the journal nor the run file: {error}")

    @cached_property
    def _shows_passed(self) -> bool:
        return self._display.shows_passed(len(self._selected()))

    def _opened_journal(self) -> Journal:
        if self._files.journal is not None:
            return self._files.journal
        selected = self._selected()
        return self._files.open(selected, max(len(selected), self._collected), self._runner.resumed.values())

    # What comes out

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._display.prepare(session)
        self._show_progress(sum(case_id_of(item) is not None for item in session.items))

    def _show_progress(self, total: int) -> None:
        """On a terminal, at the usual verbosity, for a run that is long enough, and where nothing else is printed."""
        reporter: Any = self._config.pluginmanager.get_plugin("terminalreporter")
        usual = self._config.getoption("verbose", 0) == 0 and self._config.getoption("capture", "fd") != "no"
        is_wanted = total > SHORTEST_RUN and usual and getattr(reporter, "isatty", False)
        if self._progress is None and is_wanted and not shows_logs_live(self._config):
            from evalkit.plugin.progress import Progress

            self._progress = Progress(self._display.stream, total)
            self._config.pluginmanager.register(self._progress, "evalkit-progress")

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if only_lists(self._config):
            return
        self._display.sort_reports(self._wanted)
        selected, selection = self._selected(), self._files.selection
        collected = max(self._runner.collected, self._collected, len(selected))
        # Nothing collected, or all deselected, is pytest's to tell; that nothing fell to this shard is not.
        is_ours = exitstatus in _OURS_TO_DECIDE or (
            exitstatus == _NOTHING and selection is not None and selection.count
        )
        self._decision = decide_outcomes(
            list(self._outcomes.values()),
            self._configuration.policy,
            selected=selected,
            collected=collected,
            part=self._files.is_part,
            shard=self._files.shard,
            whole=None if selection is None else selection.count,
            baseline=self._before,
        )
        interrupted = exitstatus not in (*_OURS_TO_DECIDE, _NOTHING)
        is_written = self._files.write(
            self._decision, self._tally.result(), selected=selected, collected=collected, interrupted=interrupted
        )
        if is_written and selected:
            self._files.trouble += publish(self._configuration, self._decision, self._baseline)
            self._annotations = annotation_lines(self._configuration)
        if is_ours and session.exitstatus == exitstatus:
            others_failed = session.testsfailed > self._failed_reports
            session.exitstatus = 1 if others_failed else self._decision.exit_status

    def show_passed_first(self, reporter: pytest.TerminalReporter) -> None:
        """Before pytest tells of failures."""
        if self._decision is not None:
            self._display.passed_first(reporter, self._outcomes, self._selected(), self._files.journal)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter, exitstatus: int) -> None:
        self._stray.show(terminalreporter)
        if self._decision is not None and exitstatus != pytest.ExitCode.USAGE_ERROR:
            selected = self._selected()
            self._display.summary(
                terminalreporter, self._decision, self._outcomes, selected, self._files.journal, self._files.trouble
            )
            measured = any(outcome.status in (PASSED, FAILED) for outcome in self._outcomes.values())
            self._display.accounting(terminalreporter, self._tally.result(), self._unpaid, measured=measured)
            self._display.unused_mocks(
                terminalreporter, [case_id for case_id in selected if case_id in self._with_unused]
            )
            if self._outcomes and not self._is_complete():  # interrupted, or -x
                terminalreporter.write_line("pytest --evalkit --evalkit-resume runs the cases that have no verdict yet")
            for line in self._annotations:
                terminalreporter.write_line(line)

    def pytest_unconfigure(self) -> None:
        if self._ledger is not None:
            self._ledger.unlink(missing_ok=True)
        self._rendezvous.remove()
        self._files.close(complete=self._is_complete())

    def _is_complete(self) -> bool:
        """Whether each selected case has its verdict, and the run that is resumed told of no other case there is."""
        selected = self._selected()
        others = set(self._runner.resumed).difference(selected)
        return all(case_id in self._outcomes for case_id in selected) and not any(
            (self._configuration.root / case_id).exists() for case_id in others
        )


class PassedFirst:
    """The place ahead of pytest's own summary; that of `Keeper` is behind its failures."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> Generator[None, None, None]:
        self._keeper.show_passed_first(terminalreporter)
        yield
