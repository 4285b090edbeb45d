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

from evalkit.agents.resolution import agent_of, opening_of
from evalkit.execution.flight import Job
from evalkit.model.redaction import Redactor
from evalkit.model.verdict import ERROR, NOT_RUN, PASSED, Verdict
from evalkit.pipeline.hosting import Host, host
from evalkit.plugin.collection import MARKED, RUNNER, CaseItem
from evalkit.plugin.configuration import Configuration
from evalkit.plugin.display import Display
from evalkit.plugin.fixture import EvalkitCase
from evalkit.plugin.markedverdicts import has_own_text, of_test
from evalkit.plugin.neighbours import RENDEZVOUS, Rendezvous
from evalkit.plugin.running import WIRE, CaseError, Runner, Told, executor_for
from evalkit.plugin.shaping import broken, properties, shape
from evalkit.plugin.testthread import Overheard, TestThread
from evalkit.reports.hostile import visible, visible_lines
from evalkit.reports.trace import TraceOptions, render
from evalkit.reports.wire import from_line, to_line

if TYPE_CHECKING:
    from evalkit.plugin.marking import MarkedCase

_STATE: pytest.StashKey[State] = pytest.StashKey()


class State:
    """One test on its way; made anew each time that it is run."""

    def __init__(self, marked: MarkedCase, run: Callable[..., Verdict]) -> None:
        self.marked = marked
        self.fixture = None if marked.case is None else EvalkitCase(marked.case, run)
        self.is_told = False

    @property
    def verdict(self) -> Verdict | None:
        return None if self.fixture is None else self.fixture.verdict


class MarkedTests:
    """The hooks, in each process that runs tests."""

    NAME = "evalkit-marked"

    def __init__(self, config: pytest.Config, configuration: Configuration) -> None:
        self.configuration = configuration
        self._config = config
        self._runner: Runner | None = config.stash.get(RUNNER, None)  # with --evalkit
        self._executor = executor_for(configuration, 1)
        self._redact = Redactor(configuration.secrets, configuration.secret_keys)
        self._display = Display(config, configuration)
        self._tags: set[str] = set()

    def marks(self, tags: Iterable[str]) -> list[pytest.MarkDecorator]:
        """Tags as marks, registered first."""
        for tag in tags:
            if tag not in self._tags:
                self._tags.add(tag)
                self._config.addinivalue_line("markers", f"{tag}: a tag of evalkit cases")
        return [getattr(pytest.mark, tag) for tag in tags]

    # What is selected

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        marked = _case_of(item)
        if marked is not None:
            item.stash[MARKED] = marked.id
            item.extra_keyword_matches.update(() if marked.case is None else marked.case.tags)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """A case that a test runs is that test's: its file is not run beside it."""
        taken = {item.stash[MARKED] for item in items if MARKED in item.stash}
        twins = [item for item in items if isinstance(item, CaseItem) and item.case_id in taken]
        if twins:
            items[:] = [item for item in items if item not in set(twins)]
            self._config.hook.pytest_deselected(items=twins)
            if self._runner is not None:
                self._runner.collected -= len(twins)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Before xdist's own hook tells the controller that this worker has collected."""
        folder = getattr(self._config, "workerinput", {}).get(RENDEZVOUS)
        if folder is not None:
            Rendezvous(folder).tell_marked(
                {item.nodeid: item.stash[MARKED] for item in session.items if MARKED in item.stash}
            )

    def pytest_sessionfinish(self) -> None:
        self._executor.close()

    # What a test does

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """A file that could not be loaded fails here, before any fixture is made."""
        marked = _case_of(item)
        if marked is not None:
            item.stash[_STATE] = State(marked, self._run)
            if marked.case is None:
                raise CaseError("the file is not a valid case")

    def given(self, item: pytest.Item) -> EvalkitCase:
        """What the fixture gives."""
        fixture = item.stash[_STATE].fixture
        assert fixture is not None, "set-up has refused broken files"
        return fixture

    def _run(self, case: Any, agent: Any) -> Verdict:
        if agent is None:
            return self._verdict_of(Job(case, self.configuration.agent if case.agent is None else None))
        context, done = copy_context(), TestThread()
        context.run(host.set, Host(done.carry))
        overheard = Overheard(agent) if _is_plain(agent) else None
        verdict = self._verdict_of(Job(case, overheard or agent, context, done))
        if overheard is not None and overheard.raised is not None:
            raise overheard.raised
        return verdict

    def _verdict_of(self, job: Job) -> Verdict:
        try:
            return self._executor.run(job)
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
            report.sections = [(visible(name), visible_lines(self._redact(text))) for name, text in report.sections]
            if not state.is_told and (report.when == "call" or not report.passed):
                state.is_told = True
                self._tell(state, item, report)
        return report

    def _tell(self, state: State, item: pytest.Item, report: pytest.TestReport) -> None:
        if state.marked.case is None:
            verdict = broken(state.marked.id, state.marked.problems)
        else:
            verdict = of_test(state.marked.case, state.verdict, item, report)
        if self._config.getoption("runxfail", False):
            verdict = replace(verdict, quarantined=None)
        line = self._redact(to_line(verdict))
        verdict = from_line(line)
        item.user_properties += properties(verdict)
        if has_own_text(verdict, report):
            if verdict.status == ERROR:
                report.when = "setup"
            if verdict.calls:
                agents = replace(verdict, status=PASSED, reasons=(), quarantined=None)
                report.sections.append(("evalkit: what the agent did", render(agents, TraceOptions())))
        else:
            shape(report, verdict)
            if self._runner is None and report.longrepr is not None and verdict.status != NOT_RUN:
                report.longrepr = self._display.trace(verdict)  # type: ignore[assignment]  # pytest asks for toterminal
        if self._runner is not None:
            setattr(report, WIRE, line if hasattr(self._config, "workerinput") else Told(line, verdict))


def _case_of(item: pytest.Item) -> MarkedCase | None:
    from evalkit.plugin.marking import FIXTURE, MarkedCase

    callspec = getattr(item, "callspec", None)
    found = None if callspec is None else callspec.params.get(FIXTURE)
    return found if isinstance(found, MarkedCase) else None


def _is_plain(agent: Any) -> bool:
    """Whether it is a function that is called as it is, and blocks."""
    return callable(agent) and opening_of(agent) is None and not agent_of("", agent).is_async
