"""Ordinary tests that run cases: what pytest and the run file are told of them.

The plugin object is registered by the first marked test, with or without --evalkit. Without it these are tests like any
other, whose failures show the trace; with it their verdicts count, each case once.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from evalkit.agents.resolution import build_called_agent, find_opening
from evalkit.execution.flight import RunRequest
from evalkit.model.redaction import Redactor
from evalkit.model.verdict import ERROR, NOT_RUN, PASSED, Verdict
from evalkit.pipeline.hosting import AgentThread, current_agent_thread
from evalkit.plugin.collection import MARKED_CASE_ID, RUNNER, CaseItem
from evalkit.plugin.configuration import Configuration
from evalkit.plugin.display import Display
from evalkit.plugin.fixture import EvalkitCase
from evalkit.plugin.markedverdicts import from_test_report, has_own_text
from evalkit.plugin.neighbours import EXCHANGE_KEY, WorkerExchange
from evalkit.plugin.running import VERDICT_ATTRIBUTE, CaseError, CaseRunner, WireVerdict, build_executor
from evalkit.plugin.shaping import apply_verdict_to_report, build_invalid_file_verdict, build_properties
from evalkit.plugin.testthread import BorrowedThread, CapturePytestOutcome
from evalkit.reports.hostile import escape_controls, escape_lines
from evalkit.reports.trace import TraceOptions, render_trace
from evalkit.reports.wire import from_line, to_line

if TYPE_CHECKING:
    from evalkit.plugin.marking import MarkedCase

_STATE: pytest.StashKey[MarkedRun] = pytest.StashKey()


class MarkedRun:
    """One test on its way; made anew each time that it is run."""

    def __init__(self, marked_case: MarkedCase, run: Callable[..., Verdict]) -> None:
        self.marked_case = marked_case
        self.fixture = None if marked_case.case is None else EvalkitCase(marked_case.case, run)
        self.is_reported = False

    @property
    def verdict(self) -> Verdict | None:
        return None if self.fixture is None else self.fixture.verdict


class MarkedTests:
    """The hooks, in each process that runs tests."""

    NAME = "evalkit-marked"

    def __init__(self, config: pytest.Config, configuration: Configuration) -> None:
        self.configuration = configuration
        self._config = config
        self._runner: CaseRunner | None = config.stash.get(RUNNER, None)  # with --evalkit
        self._executor = build_executor(configuration, 1)
        self._redact = Redactor(configuration.secrets, configuration.secret_keys)
        self._display = Display(config, configuration)
        self._tags: set[str] = set()

    def register_marks(self, tags: Iterable[str]) -> list[pytest.MarkDecorator]:
        """Tags as marks, registered first."""
        for tag in tags:
            if tag not in self._tags:
                self._tags.add(tag)
                self._config.addinivalue_line("markers", f"{tag}: a tag of evalkit cases")
        return [getattr(pytest.mark, tag) for tag in tags]

    # What is selected

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        marked_case = _get_marked_case(item)
        if marked_case is not None:
            item.stash[MARKED_CASE_ID] = marked_case.id
            item.extra_keyword_matches.update(() if marked_case.case is None else marked_case.case.tags)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """A case that a test runs is that test's: its file is not run beside it."""
        case_ids = {item.stash[MARKED_CASE_ID] for item in items if MARKED_CASE_ID in item.stash}
        twins = [item for item in items if isinstance(item, CaseItem) and item.case_id in case_ids]
        if twins:
            items[:] = [item for item in items if item not in set(twins)]
            self._config.hook.pytest_deselected(items=twins)
            if self._runner is not None:
                self._runner.collected_count -= len(twins)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Before xdist's own hook tells the controller that this worker has collected."""
        folder = getattr(self._config, "workerinput", {}).get(EXCHANGE_KEY)
        if folder is not None:
            WorkerExchange(folder).write_marked(
                {item.nodeid: item.stash[MARKED_CASE_ID] for item in session.items if MARKED_CASE_ID in item.stash}
            )

    def pytest_sessionfinish(self) -> None:
        self._executor.close()

    # What a test does

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """A file that could not be loaded fails here, before any fixture is made."""
        marked_case = _get_marked_case(item)
        if marked_case is not None:
            item.stash[_STATE] = MarkedRun(marked_case, self._run)
            if marked_case.case is None:
                raise CaseError("the file is not a valid case")

    def given(self, item: pytest.Item) -> EvalkitCase:
        """What the fixture gives."""
        fixture = item.stash[_STATE].fixture
        assert fixture is not None, "set-up has refused broken files"
        return fixture

    def _run(self, case: Any, agent: Any) -> Verdict:
        if agent is None:
            return self._run_request(RunRequest(case, self.configuration.agent if case.agent is None else None))
        context, thread = copy_context(), BorrowedThread()
        context.run(current_agent_thread.set, AgentThread(thread.call_soon))
        capture = CapturePytestOutcome(agent) if _is_blocking_function(agent) else None
        verdict = self._run_request(RunRequest(case, capture or agent, context, thread))
        if capture is not None and capture.outcome is not None:
            raise capture.outcome
        return verdict

    def _run_request(self, request: RunRequest) -> Verdict:
        try:
            return self._executor.run(request)
        except BaseException:  # Ctrl-C, a timeout: what the agent does at its end comes before the fixtures are gone
            self._executor.close()
            raise

    # What is told of it

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        state = item.stash.get(_STATE, None)
        if state is not None:
            report.sections = [
                (escape_controls(name), escape_lines(self._redact(text))) for name, text in report.sections
            ]
            if not state.is_reported and (report.when == "call" or not report.passed):
                state.is_reported = True
                self._report_verdict(state, item, report)
        return report

    def _report_verdict(self, state: MarkedRun, item: pytest.Item, report: pytest.TestReport) -> None:
        if state.marked_case.case is None:
            verdict = build_invalid_file_verdict(state.marked_case.id, state.marked_case.problems)
        else:
            verdict = from_test_report(state.marked_case.case, state.verdict, item, report)
        if self._config.getoption("runxfail", False):
            verdict = replace(verdict, quarantined=None)
        line = self._redact(to_line(verdict))
        verdict = from_line(line)
        item.user_properties += build_properties(verdict)
        if has_own_text(verdict, report):
            if verdict.status == ERROR:
                report.when = "setup"
            if verdict.calls:
                agent_verdict = replace(verdict, status=PASSED, reasons=(), quarantined=None)
                report.sections.append(("evalkit: what the agent did", render_trace(agent_verdict, TraceOptions())))
        else:
            apply_verdict_to_report(report, verdict)
            if self._runner is None and report.longrepr is not None and verdict.status != NOT_RUN:
                report.longrepr = self._display.build_trace(verdict)  # type: ignore[assignment]  # pytest asks for toterminal
        if self._runner is not None:
            setattr(
                report, VERDICT_ATTRIBUTE, line if hasattr(self._config, "workerinput") else WireVerdict(line, verdict)
            )


def _get_marked_case(item: pytest.Item) -> MarkedCase | None:
    from evalkit.plugin.marking import FIXTURE, MarkedCase

    callspec = getattr(item, "callspec", None)
    parameter = None if callspec is None else callspec.params.get(FIXTURE)
    return parameter if isinstance(parameter, MarkedCase) else None


def _is_blocking_function(agent: Any) -> bool:
    """Whether it is a function that is called as it is, and blocks."""
    return callable(agent) and find_opening(agent) is None and not build_called_agent("", agent).is_async
