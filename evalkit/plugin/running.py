"""Running items and telling what came of them, in the process that runs them."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextvars import copy_context
from itertools import islice
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import Struct
from msgspec.structs import replace

from evalkit.errors import EvalkitError
from evalkit.execution.executor import Executor
from evalkit.execution.flight import Job
from evalkit.model.redaction import Redactor
from evalkit.model.verdict import ERROR, NOT_RUN, PASSED, Reason, Verdict
from evalkit.plugin.collection import RUNNER, CaseItem, case_id_of
from evalkit.plugin.configuration import Configuration
from evalkit.plugin.neighbours import Neighbours
from evalkit.plugin.output import Output, OutputRouting, begin_output
from evalkit.plugin.shaping import broken, first_reason, from_outside, properties, shape, verdict_of
from evalkit.plugin.stray import Sieve
from evalkit.reports.hostile import visible, visible_lines
from evalkit.reports.wire import from_line, to_line, to_plain_line
from evalkit.spec.loading import load_case

if TYPE_CHECKING:
    from evalkit.plugin.cluster import Cluster

WIRE = "evalkit_verdict"  # the attribute of a report that carries the verdict
RESUMED = "evalkit_resumed"  # the key of xdist's workerinput that carries verdicts of the run before


class CaseError(pytest.fail.Exception):  # type: ignore[misc, name-defined]
    """Raised by an item so that pytest knows of the failure; the report shows the trace instead of a traceback."""

    def __init__(self, message: str) -> None:
        super().__init__(message, pytrace=False)


class Told(Struct, frozen=True):
    """A verdict on its way from the item to the keeper within one process. Workers send the line alone."""

    line: str
    verdict: Verdict


class Runner:
    """The hooks of a process that runs cases."""

    def __init__(self, config: pytest.Config, configuration: Configuration) -> None:
        self._config = config
        self._configuration = configuration
        self._is_worker = hasattr(config, "workerinput")
        self._concurrency = _overlapping(config, configuration)
        self._executor = executor_for(configuration, self._concurrency, config)
        self._redact = Redactor(configuration.secrets, configuration.secret_keys)
        self._outputs: dict[str, Output] = {}
        self._sieve = Sieve(self._redact)
        self._places: dict[pytest.Item, int] = {}
        self._place = -1  # of the item that ran last
        self._announced = 0  # the items before this place may have started
        self._neighbours = Neighbours(config)
        self._items: list[pytest.Item] = []
        self.selected: list[str] = []
        self.collected = 0
        self.resumed: dict[str, str] = dict(getattr(config, "workerinput", {}).get(RESUMED, {}))
        config.stash[RUNNER] = self
        if self._concurrency > 1:
            config.pluginmanager.register(OutputRouting(), "evalkit-output")

    # What was selected

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        self.collected += sum(case_id_of(item) is not None for item in items)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        ids = (case_id_of(item) for item in session.items)
        self.selected = list(dict.fromkeys(case_id for case_id in ids if case_id is not None))
        self.collected += len(self.selected)
        self._items = session.items
        self._places = {item: place for place, item in enumerate(session.items)}
        self._neighbours.collected([item.nodeid for item in session.items])

    def pytest_sessionfinish(self) -> None:
        self._executor.close()
        if self._is_worker:
            output: dict[str, Any] = self._config.workeroutput  # type: ignore[attr-defined]
            output["evalkit"] = {"selected": self.selected, "collected": self.collected}

    # What an item does

    def set_up(self, item: CaseItem) -> None:
        """A file that could not be loaded fails here, before anything runs."""
        if item.case is None:
            item.verdict = broken(item.case_id, item.problems)
            raise CaseError(item.verdict.summary)

    def run(self, item: CaseItem) -> None:
        """Run the case, and raise if pytest is to know of it."""
        assert item.case is not None
        verdict = item.verdict = self._resumed_verdict(item) or self._run_case(item)
        if verdict.status == NOT_RUN:
            pytest.skip(first_reason(verdict))
        if verdict.status != PASSED:
            raise CaseError(first_reason(verdict))

    def _run_case(self, item: CaseItem) -> Verdict:
        job = self._job(item)
        try:
            verdict = self._executor.run(job, self._ahead(item))
        except pytest.fail.Exception as error:  # a timeout plugin's: it can't know whose time it is
            if not isinstance(self._executor, Executor) or not self._executor.hand_over(job, error):
                raise
            self._announced = self._places[item] + 1
            verdict = self._executor.run(job)
        if self._concurrency > 1:
            item.seconds = self._executor.seconds
            for kind, text in self._outputs.pop(item.case_id).sections():
                item.add_report_section("call", kind, text)
                item.own_sections.append((f"Captured {kind} call", text))
        return verdict

    def _job(self, item: CaseItem) -> Job:
        case = item.case
        assert case is not None
        agent = self._configuration.agent if case.agent is None else None
        if self._concurrency == 1:
            return Job(case, agent)
        context = copy_context()
        context.run(begin_output, self._outputs.setdefault(case.id, Output()))
        return Job(case, agent, context)

    def _ahead(self, item: CaseItem) -> Iterator[Job]:
        """The cases that follow `item` without any other test between them, as far as they are not announced yet."""
        place, window = self._places[item], self._executor.window
        if place not in (self._place, self._place + 1):
            self._announced = place  # another bucket
        self._place, self._announced = place, max(self._announced, place + 1)
        if self._announced > place + 1 + window // 2 or not self._neighbours.has(item):
            return  # many at a time, not one for one
        for later in islice(self._items, self._announced, place + 1 + window):
            if not isinstance(later, CaseItem) or not self._neighbours.are(item, later):
                return
            self._announced += 1
            if later.case is not None and later.case_id not in self.resumed:
                yield self._job(later)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> None:
        """No agent runs across a test of another kind."""
        if not isinstance(item, CaseItem):
            self._executor.settle()

    def _resumed_verdict(self, item: CaseItem) -> Verdict | None:
        """What the run before said of this very case, if it could be measured and the case has not changed since."""
        line = self.resumed.get(item.case_id)
        if line is None or item.case is None:
            return None
        verdict = from_line(line)
        if self._configuration.faults and verdict.passed and not verdict.faults:
            return None  # it was not swept, or nothing could fail: that is soon found again
        current = from_line(self._redact(to_line(Verdict(case=item.case.merged))))
        return verdict if verdict.case == current.case else None

    # What is told of it

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if isinstance(item, CaseItem):
            self._tell(item, call, report)
            if call.when == "teardown":
                item.release()  # a hundred thousand cases are not kept in memory
        return report

    def _tell(self, item: CaseItem, call: pytest.CallInfo[None], report: pytest.TestReport) -> None:
        if report.sections and self._concurrency > 1:
            self._sieve.sift(item, report, overlaps=self._announced > self._places[item] + 1)
        report.sections = [(visible(name), visible_lines(self._redact(text))) for name, text in report.sections]
        if item.verdict is None and not report.passed:
            item.verdict = from_outside(item, call, report)
        if item.is_told or item.verdict is None:
            return
        item.is_told = True
        if item.seconds is not None and report.when == "call":
            report.duration = item.seconds  # the case's own time, and not how long it was waited for
        told = self.told(item.verdict)
        item.verdict = None  # its transcript need not stay in memory
        item.user_properties += properties(told.verdict)
        shape(report, told.verdict)
        setattr(report, WIRE, told.line if self._is_worker else told)

    def unmeasured(self, case_id: str, reason: Reason) -> Verdict:
        """The verdict of a case whose worker died: what it is called and whether it must pass stands in its file."""
        try:
            case = load_case(self._configuration.root / case_id, root=self._configuration.root)
        except EvalkitError:
            return Verdict(case_id=case_id, status=ERROR, reasons=(reason,), path=case_id)
        return verdict_of(case, ERROR, reason)

    def told(self, verdict: Verdict) -> Told:
        """`verdict` as it may be shown: without secrets, and as who reads the line back knows it."""
        if self._config.getoption("runxfail", False):
            verdict = replace(verdict, quarantined=None)
        plain = to_plain_line(verdict)
        line = self._redact(to_line(verdict) if plain is None else plain)
        return Told(line, verdict if line == plain else from_line(line))


def _overlapping(config: pytest.Config, configuration: Configuration) -> int:
    """How many cases may be on their way at the same time. On a cluster always several: it calls back what a stop has
    made worthless."""
    if configuration.executor is not None:
        return max(configuration.concurrency, 2)
    return 1 if one_at_a_time(config) else configuration.concurrency


def executor_for(
    configuration: Configuration, concurrency: int, config: pytest.Config | None = None
) -> Executor | Cluster:
    """What runs cases: this process, or the cluster that the session of `config` was told."""
    if configuration.executor is not None and config is not None:
        from evalkit.plugin.cluster import Cluster

        return Cluster(config, configuration, singly=one_at_a_time(config))
    if not configuration.faults:
        return Executor(configuration.settings, concurrency)
    from evalkit.probing.sweeping import arun_swept

    return Executor(configuration.settings, concurrency, arun_swept)


def one_at_a_time(config: pytest.Config) -> bool:
    """Whether the session asks for what only makes sense one after another: to stop at a failure, to see output live,
    to debug."""
    switches = any(config.getoption(name, False) for name in ("maxfail", "usepdb", "trace", "stepwise"))
    return switches or config.getoption("capture", "fd") == "no" or shows_logs_live(config)


def shows_logs_live(config: pytest.Config) -> bool:
    """Whether log records go to the terminal as they come."""
    try:
        return bool(config.getini("log_cli")) or config.getoption("log_cli_level", None) is not None
    except ValueError:  # pytest's logging plugin is switched off
        return False
