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
from evalkit.execution.executor import Executor, RunRequest
from evalkit.model.verdict import ERROR, NOT_RUN, PASSED, Reason, Verdict
from evalkit.plugin.batches import BatchPlan
from evalkit.plugin.capture import CaseOutput, OutputRouting, UnattributedOutputFilter, begin_output
from evalkit.plugin.collection import RUNNER, CaseItem, get_case_id
from evalkit.plugin.configuration import Configuration
from evalkit.plugin.verdicts import (
    apply_verdict_to_report,
    build_invalid_file_verdict,
    build_properties,
    from_report,
    get_first_reason,
)
from evalkit.reports.serialization import from_line, to_line, to_plain_line
from evalkit.runner.judge import build_unjudged_verdict
from evalkit.spec.load import load_case
from evalkit.text.escape import escape_controls, escape_lines
from evalkit.text.redact import Redactor

if TYPE_CHECKING:
    from evalkit.plugin.cluster.session import ClusterSession


VERDICT_ATTRIBUTE = "evalkit_verdict"  # the attribute of a report that carries the verdict
RESUMED_KEY = "evalkit_resumed"  # the key of xdist's workerinput that carries verdicts of the run before


class CaseError(pytest.fail.Exception):  # type: ignore[misc, name-defined]
    """Raised by an item so that pytest knows of the failure; the report shows the trace instead of a traceback."""

    def __init__(self, message: str) -> None:
        super().__init__(message, pytrace=False)


class WireVerdict(Struct, frozen=True):
    """A verdict on its way from the item to the keeper within one process. Workers send the line alone."""

    line: str
    verdict: Verdict


class CaseRunner:
    """The hooks of a process that runs cases."""

    def __init__(self, config: pytest.Config, configuration: Configuration) -> None:
        self._config = config
        self._configuration = configuration
        self._is_worker = hasattr(config, "workerinput")
        self._concurrency = _count_overlapping(config, configuration)
        self._executor = build_executor(configuration, self._concurrency, config)
        self._redact = Redactor(configuration.secrets, configuration.secret_keys)
        self._outputs: dict[str, CaseOutput] = {}
        self._unattributed_filter = UnattributedOutputFilter(self._redact)
        self._positions: dict[pytest.Item, int] = {}
        self._position = -1  # of the item that ran last
        self._scheduled_until = 0  # the items before this place may have started
        self._batch_plan = BatchPlan(config)
        self._items: list[pytest.Item] = []
        self.selected_ids: list[str] = []
        self.collected_count = 0
        self.resumed_lines: dict[str, str] = dict(getattr(config, "workerinput", {}).get(RESUMED_KEY, {}))
        config.stash[RUNNER] = self
        if self._concurrency > 1:
            config.pluginmanager.register(OutputRouting(), "evalkit-output")

    # What was selected

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        self.collected_count += sum(get_case_id(item) is not None for item in items)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        ids = (get_case_id(item) for item in session.items)
        self.selected_ids = list(dict.fromkeys(case_id for case_id in ids if case_id is not None))
        self.collected_count += len(self.selected_ids)
        self._items = session.items
        self._positions = {item: place for place, item in enumerate(session.items)}
        self._batch_plan.plan([item.nodeid for item in session.items])

    def pytest_sessionfinish(self) -> None:
        self._executor.close()
        if self._is_worker:
            output: dict[str, Any] = self._config.workeroutput  # type: ignore[attr-defined]
            output["evalkit"] = {"selected": self.selected_ids, "collected": self.collected_count}

    # What an item does

    def set_up(self, item: CaseItem) -> None:
        """A file that could not be loaded fails here, before anything runs."""
        if item.case is None:
            item.verdict = build_invalid_file_verdict(item.case_id, item.problems)
            raise CaseError(item.verdict.summary)

    def run(self, item: CaseItem) -> None:
        """Run the case, and raise if pytest is to know of it."""
        assert item.case is not None
        verdict = item.verdict = self._find_resumed_verdict(item) or self._run_case(item)
        if verdict.status == NOT_RUN:
            pytest.skip(get_first_reason(verdict))
        if verdict.status != PASSED:
            raise CaseError(get_first_reason(verdict))

    def _run_case(self, item: CaseItem) -> Verdict:
        request = self._build_request(item)
        try:
            verdict = self._executor.run(request, self._following_cases(item))
        except pytest.fail.Exception as error:  # a timeout plugin's: it can't know whose time it is
            if not isinstance(self._executor, Executor) or not self._executor.move_error_to_blocker(request, error):
                raise
            self._scheduled_until = self._positions[item] + 1
            verdict = self._executor.run(request)
        if self._concurrency > 1:
            item.seconds = self._executor.seconds
            for kind, text in self._outputs.pop(item.case_id).list_sections():
                item.add_report_section("call", kind, text)
                item.output_sections.append((f"Captured {kind} call", text))
        return verdict

    def _build_request(self, item: CaseItem) -> RunRequest:
        case = item.case
        assert case is not None
        agent = self._configuration.agent if case.agent is None else None
        if self._concurrency == 1:
            return RunRequest(case, agent)
        context = copy_context()
        context.run(begin_output, self._outputs.setdefault(case.id, CaseOutput()))
        return RunRequest(case, agent, context)

    def _following_cases(self, item: CaseItem) -> Iterator[RunRequest]:
        """The cases that follow `item` without any other test between them, as far as they are not announced yet."""
        place, window = self._positions[item], self._executor.window
        if place not in (self._position, self._position + 1):
            self._scheduled_until = place  # another bucket
        self._position, self._scheduled_until = place, max(self._scheduled_until, place + 1)
        if self._scheduled_until > place + 1 + window // 2 or not self._batch_plan.can_run_ahead(item):
            return  # many at a time, not one for one
        for later in islice(self._items, self._scheduled_until, place + 1 + window):
            if not isinstance(later, CaseItem) or not self._batch_plan.is_same_batch(item, later):
                return
            self._scheduled_until += 1
            if later.case is not None and later.case_id not in self.resumed_lines:
                yield self._build_request(later)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> None:
        """No agent runs across a test of another kind."""
        if not isinstance(item, CaseItem):
            self._executor.cancel_pending()

    def _find_resumed_verdict(self, item: CaseItem) -> Verdict | None:
        """What the run before said of this very case, if it could be measured and the case has not changed since."""
        line = self.resumed_lines.get(item.case_id)
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
            self._report_verdict(item, call, report)
            if call.when == "teardown":
                item.release()  # a hundred thousand cases are not kept in memory
        return report

    def _report_verdict(self, item: CaseItem, call: pytest.CallInfo[None], report: pytest.TestReport) -> None:
        if report.sections and self._concurrency > 1:
            self._unattributed_filter.filter_report(
                item, report, overlaps=self._scheduled_until > self._positions[item] + 1
            )
        report.sections = [(escape_controls(name), escape_lines(self._redact(text))) for name, text in report.sections]
        if item.verdict is None and not report.passed:
            item.verdict = from_report(item, call, report)
        if item.is_reported or item.verdict is None:
            return
        item.is_reported = True
        if item.seconds is not None and report.when == "call":
            report.duration = item.seconds  # the case's own time, and not how long it was waited for
        wire_verdict = self.serialize(item.verdict)
        item.verdict = None  # its transcript need not stay in memory
        item.user_properties += build_properties(wire_verdict.verdict)
        apply_verdict_to_report(report, wire_verdict.verdict)
        setattr(report, VERDICT_ATTRIBUTE, wire_verdict.line if self._is_worker else wire_verdict)

    def build_unmeasured_verdict(self, case_id: str, reason: Reason) -> Verdict:
        """The verdict of a case whose worker died: what it is called and whether it must pass stands in its file."""
        try:
            case = load_case(self._configuration.root / case_id, root=self._configuration.root)
        except EvalkitError:
            return Verdict(case_id=case_id, status=ERROR, reasons=(reason,), path=case_id)
        return build_unjudged_verdict(case, ERROR, reason, summary="")

    def serialize(self, verdict: Verdict) -> WireVerdict:
        """`verdict` as it may be shown: without secrets, and as who reads the line back knows it."""
        if self._config.getoption("runxfail", False):
            verdict = replace(verdict, quarantined=None)
        plain = to_plain_line(verdict)
        line = self._redact(to_line(verdict) if plain is None else plain)
        return WireVerdict(line, verdict if line == plain else from_line(line))


def _count_overlapping(config: pytest.Config, configuration: Configuration) -> int:
    """How many cases may be on their way at the same time. On a cluster always several: it calls back what a stop has
    made worthless."""
    if configuration.executor is not None:
        return max(configuration.concurrency, 2)
    return 1 if is_one_at_a_time(config) else configuration.concurrency


def build_executor(
    configuration: Configuration, concurrency: int, config: pytest.Config | None = None
) -> Executor | ClusterSession:
    """What runs cases: this process, or the cluster that the session of `config` was told."""
    if configuration.executor is not None and config is not None:
        from evalkit.plugin.cluster.session import ClusterSession

        return ClusterSession(config, configuration, singly=is_one_at_a_time(config))
    if not configuration.faults:
        return Executor(configuration.settings, concurrency)
    from evalkit.casecheck.fault_injection import arun_with_faults

    return Executor(configuration.settings, concurrency, arun_with_faults)


def is_one_at_a_time(config: pytest.Config) -> bool:
    """Whether the session asks for what only makes sense one after another: to stop at a failure, to see output live,
    to debug."""
    switches = any(config.getoption(name, False) for name in ("maxfail", "usepdb", "trace", "stepwise"))
    return switches or config.getoption("capture", "fd") == "no" or is_logging_live(config)


def is_logging_live(config: pytest.Config) -> bool:
    """Whether log records go to the terminal as they come."""
    try:
        return bool(config.getini("log_cli")) or config.getoption("log_cli_level", None) is not None
    except ValueError:  # pytest's logging plugin is switched off
        return False
