"""What a session prints: a trace per failing case as its longrepr, and one section at the end."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from msgspec import Struct

from evalkit.gate.counts import Outcome
from evalkit.gate.rates import percentage
from evalkit.model.run import MET, MISSED, GateDecision
from evalkit.model.verdict import ERROR, FAILED, NOT_RUN, PASSED, Verdict
from evalkit.plugin.configuration import Configuration
from evalkit.reports.hostile import encodable, visible
from evalkit.reports.journal import Journal
from evalkit.reports.spans import Line, line_text
from evalkit.stats.accounting import Accounting

if TYPE_CHECKING:  # a run without anything to show imports nothing that shows it
    from evalkit.reports.trace import TraceOptions

MOST_PASSED_TRACES = 50
_MOST_PREPARED = 10_000_000  # characters of traces in memory
_MOST_NAMED = 3
_WORDS = {MET: "gate met", MISSED: "gate MISSED"}
_COLOURS = {MET: {"green": True}, MISSED: {"red": True}}


class Crash(Struct, frozen=True):
    """What pytest takes from a longrepr for one-line summaries and JUnit's message."""

    path: str
    message: str
    lineno: int = 1

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


class Trace:
    """A trace as pytest's longrepr: painted on a terminal that has colours, plain text everywhere else."""

    def __init__(self, shown: list[Line], crash: Crash, encoding: str | None) -> None:
        self._shown = shown
        self._encoding = encoding
        self.reprcrash = crash

    def __str__(self) -> str:
        return "\n".join(line_text(line) for line in self._shown)

    def toterminal(self, tw: pytest.TerminalReporter) -> None:
        """Called by pytest with its terminal writer."""
        if getattr(tw, "hasmarkup", False):
            from evalkit.reports.trace import paint

            tw.write(paint(self._shown, self._encoding) + "\n")
        else:
            tw.write(encodable(str(self), self._encoding) + "\n")


class Display:
    """Prints as the options say."""

    def __init__(self, config: pytest.Config, configuration: Configuration) -> None:
        self._config = config
        self._configuration = configuration
        self.stream = sys.stdout  # before pytest captures it
        self._encoding = getattr(self.stream, "encoding", None)
        self._columns = shutil.get_terminal_size().columns
        self._prepared: dict[str, str] = {}  # case id -> the trace of a passed case
        self._room = _MOST_PREPARED

    @cached_property
    def _options(self) -> TraceOptions:
        from evalkit.reports.trace import TraceOptions

        breaks_at = self._columns if self.stream.isatty() else None
        return TraceOptions(self._columns, breaks_at, conversation=self._configuration.conversation)

    def prepare(self, session: pytest.Session) -> None:
        """Progress of many cases is one row of dots, and not a line for each of their files."""
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None and reporter.verbosity == 0 and len(session.items) > MOST_PASSED_TRACES:
            reporter.showfspath = False

    def sort_reports(self, order: Iterable[str]) -> None:
        """Under xdist reports come as they end; they are shown in the order of collection, as without it."""
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        places = {node_id: place for place, node_id in enumerate(order)}
        if reporter is not None and places:
            for reports in reporter.stats.values():
                reports.sort(key=lambda report: places.get(getattr(report, "nodeid", ""), -1))

    def trace(self, verdict: Verdict) -> Trace:
        """The longrepr of a case that did not pass."""
        from evalkit.reports.trace import lines

        shown = lines(verdict, self._options)
        reason = next((reason.message or reason.code for reason in verdict.reasons), verdict.summary)
        crash = Crash(verdict.path or verdict.case_id, " ".join(visible(reason, keep="\n").split()))
        return Trace(shown[:1] if self._configuration.trace == "none" else shown, crash, self._encoding)

    def summary(
        self,
        reporter: pytest.TerminalReporter,
        decision: GateDecision,
        outcomes: Mapping[str, Outcome],
        selected: Sequence[str],
        journal: Journal | None,
        trouble: Sequence[str],
    ) -> None:
        """The section at the end: traces of passed cases, a table by category, the gate with its reasons."""
        verbosity = self._config.getoption("verbose", 0)
        reporter.write_sep("=", "evalkit")
        if not selected and not outcomes:
            self._gate(reporter, decision, verbosity)
            if not decision.facts["collected"] and not reporter.stats.get("error"):  # else those say why
                reporter.write_line("  a case is a file named <category>_<number>.yaml, such as refund_001.yaml")
            return
        if journal is not None and self.shows_passed(len(selected)) and not _has_failed(outcomes):
            self._passed_traces(reporter, outcomes, selected, journal)
        if verbosity >= 0:
            for row in (*category_table(outcomes, selected), *extremes(outcomes, 10 if verbosity else 3)):
                reporter.write_line(encodable(row, self._encoding))
        self._gate(reporter, decision, verbosity)
        for line in trouble:
            reporter.write_line(self._encoded(f"evalkit: {line}"), red=True, bold=True)
        if verbosity >= 0:
            self._name_files(reporter, trouble)

    def _name_files(self, reporter: pytest.TerminalReporter, trouble: Sequence[str]) -> None:
        """Those that were written; of the others `trouble` tells."""
        told = " ".join(trouble)
        if "the run file was not written" in told:
            return  # and reports are made of it
        reporter.write_line(f"run file: {self._shown(self._configuration.results)}")
        if self._configuration.html is not None and "the HTML report was not written" not in told:
            reporter.write_line(f"report: {self._shown(self._configuration.html)}")

    def accounting(
        self, reporter: pytest.TerminalReporter, accounting: Accounting, unpaid: Sequence[str], *, measured: bool
    ) -> None:
        """What models took, and warnings: cases for which nothing was left to spend, calls that came as text.

        `measured`: some case passed or failed. Where none did, its error says what became of the model.
        """
        used_models = accounting.turns or accounting.calls.total
        if (used_models or accounting.grades) and self._config.option.verbose >= 0:
            from evalkit.reports.accounting import accounting_lines

            for line in accounting_lines(accounting):
                reporter.write_line(self._encoded(line))
        if unpaid:
            cases = "1 case was" if len(unpaid) == 1 else f"{len(unpaid)} cases were"
            reporter.write_line(self._encoded(f"evalkit: {cases} not run: {unpaid[0]}"), yellow=True, bold=True)
        live = self._configuration.settings.model
        if not accounting.turns and live is not None and measured:
            says = f"{live} was asked for, and no reply of a model was seen: do the agents use `task.model`?"
            reporter.write_line(self._encoded(f"evalkit: {says}"), yellow=True, bold=True)
        if not used_models:
            return
        from evalkit.reports.accounting import fallback_warning

        warning = fallback_warning(accounting, percentage(self._configuration.max_fallback_rate))
        if warning is not None:
            reporter.write_line(self._encoded(f"evalkit: {warning}"), yellow=True, bold=True)

    def unused_mocks(self, reporter: pytest.TerminalReporter, passed: Sequence[str]) -> None:
        """Passed cases with mocks that answered no call: the agent does not do what whoever wrote them thought."""
        if not passed or self._config.option.verbose < 0:
            return
        more = f" and {len(passed) - _MOST_NAMED} more" if len(passed) > _MOST_NAMED else ""
        cases = "1 passed case" if len(passed) == 1 else f"{len(passed)} passed cases"
        named = ", ".join(passed[:_MOST_NAMED])
        line = f"mocks that no call used in {cases} (strict_mocks: true fails them): {named}{more}"
        reporter.write_line(self._encoded(line))

    def shows_passed(self, number: int) -> bool:
        """Whether traces of passed cases are printed, where so many are selected."""
        if self._configuration.trace is not None:
            return self._configuration.trace == "all"
        verbosity = self._config.getoption("verbose", 0)
        return bool(verbosity > 0 or (verbosity == 0 and number <= MOST_PASSED_TRACES))

    def passed_first(
        self,
        reporter: pytest.TerminalReporter,
        outcomes: Mapping[str, Outcome],
        selected: Sequence[str],
        journal: Journal | None,
    ) -> None:
        """Where cases failed, the traces of the others: ahead of pytest's failures, which they would bury."""
        passed = any(outcome.status == PASSED for outcome in outcomes.values())
        if journal is not None and passed and _has_failed(outcomes) and self.shows_passed(len(selected)):
            reporter.write_sep("=", "evalkit: passed")
            self._passed_traces(reporter, outcomes, selected, journal)

    def prepare_passed(self, verdict: Verdict) -> None:
        """Make the trace that is printed at the end while the verdict is at hand: reading it back from the journal
        takes as long as making the trace. Those for which there is no room are made at the end."""
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        if self._room > 0 and reporter is not None:
            self._prepared[verdict.case_id] = text = self._passed_trace(verdict, reporter)
            self._room -= len(text)

    def _passed_traces(
        self,
        reporter: pytest.TerminalReporter,
        outcomes: Mapping[str, Outcome],
        selected: Sequence[str],
        journal: Journal,
    ) -> None:
        for case_id in selected:
            if case_id not in outcomes or outcomes[case_id].status != PASSED:
                continue
            text = self._prepared.pop(case_id, None)
            if text is None and (verdict := journal.verdict(case_id)) is not None:
                text = self._passed_trace(verdict, reporter)
            if text is not None:
                reporter.write_line(text)

    def _passed_trace(self, verdict: Verdict, reporter: pytest.TerminalReporter) -> str:
        from evalkit.reports.trace import lines, paint

        shown = lines(verdict, self._options)
        if reporter.hasmarkup:
            return paint(shown, self._encoding)
        return encodable("\n".join(map(line_text, shown)), self._encoding)

    def _gate(self, reporter: pytest.TerminalReporter, decision: GateDecision, verbosity: int) -> None:
        word = _WORDS.get(decision.status, "gate NOT MEASURED")
        colour = _COLOURS.get(decision.status, {"yellow": True})
        first, *others = decision.reasons or ("",)
        reporter.write_line(self._encoded(f"{word}: {first}"), bold=True, **colour)
        for reason in others:
            reporter.write_line(self._encoded(f"  {reason}"))
        if verbosity >= 0:
            for note in decision.facts["notes"]:
                reporter.write_line(self._encoded(f"  {note}"))

    def _encoded(self, text: str) -> str:
        return encodable(visible(text), self._encoding)

    def _shown(self, path: Path) -> str:
        start = self._config.invocation_params.dir
        return path.relative_to(start).as_posix() if path.is_relative_to(start) else path.as_posix()


def _has_failed(outcomes: Mapping[str, Outcome]) -> bool:
    return any(one.status in (FAILED, ERROR) and not one.quarantined for one in outcomes.values())


def extremes(outcomes: Mapping[str, Outcome], number: int) -> Iterator[str]:
    """The slowest cases, of those that took a second or more, and the dearest."""
    slow = sorted((o for o in outcomes.values() if o.elapsed_ms >= 1000), key=lambda o: (-o.elapsed_ms, o.case_id))[
        :number
    ]
    dear = sorted((o for o in outcomes.values() if o.cost_usd), key=lambda o: (-(o.cost_usd or 0), o.case_id))[:number]
    if slow:
        from evalkit.reports.trace import duration_text

        yield "slowest: " + ", ".join(f"{visible(o.case_id)} {duration_text(o.elapsed_ms)}" for o in slow)
    if dear:
        total = sum(o.cost_usd or 0 for o in outcomes.values())
        yield f"cost: {total:.4g} USD; dearest: " + ", ".join(f"{visible(o.case_id)} {o.cost_usd:.4g}" for o in dear)


def category_table(outcomes: Mapping[str, Outcome], selected: Sequence[str]) -> Iterator[str]:
    """One row per category, if there is more than one: how many passed, failed, could not be measured, did not run."""
    statuses = (PASSED, FAILED, ERROR, NOT_RUN)
    rows: dict[str, dict[str, int]] = {}
    for case_id in selected:
        outcome = outcomes.get(case_id)
        category = (outcome.category if outcome is not None else "") or "(not loaded)"
        row = rows.setdefault(category, dict.fromkeys(statuses, 0))
        row[outcome.status if outcome is not None else NOT_RUN] += 1
    if len(rows) < 2:
        return
    width = max(len("category"), *(len(visible(name)) for name in rows))
    yield f"{'category':<{width}}  passed  failed   error  not run"
    for name in sorted(rows):
        passed, failed, error, not_run = (rows[name][status] for status in statuses)
        yield f"{visible(name):<{width}}  {passed:>6}  {failed:>6}  {error:>6}  {not_run:>7}"
