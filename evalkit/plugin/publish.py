"""Reports beside the run file: those of features, and on a GitHub runner summary and annotations.

Everything is rendered from the run file, which holds no secrets.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evalkit.errors import EvalkitError
from evalkit.gate.outcomes import CaseOutcome, build_outcomes, iter_outcomes
from evalkit.hooks import EndedRun, Loss, Published, SessionPart, iter_known, name_errors
from evalkit.hosts.reports.run_file import StoredRun, load_run, read_verdicts
from evalkit.jsonvalue import JsonDict
from evalkit.lazy import LazyModule
from evalkit.plugin.configuration import Configuration
from evalkit.records.run import GateDecision, Run
from evalkit.records.verdict import ERROR, FAILED

if TYPE_CHECKING:
    from evalkit.hosts.reports import finished, table
    from evalkit.hosts.reports.finished import FinishedRun
else:
    finished = LazyModule("evalkit.hosts.reports.finished")
    table = LazyModule("evalkit.hosts.reports.table")

# pytest's writer escapes < and > in texts and attributes, so that neither stands in another place.
_TESTCASE = re.compile(r'<testcase (?P<names>classname="[^"]*" name="[^"]*")[^>]*?(?:/>|>.*?</testcase>)', re.DOTALL)
_TESTSUITE = re.compile(r"<testsuite [^>]*>")
_COUNT = re.compile(r'\b(?P<tag>tests|failures|errors|skipped)="(?P<number>\d+)"')


RUN_FILE = "the run file"
STEP_SUMMARY = "the step summary"


def read_baseline(configuration: Configuration) -> tuple[list[CaseOutcome] | None, Run | None]:
    """Return the baseline's outcomes for the gate, and the run itself if a report shows both."""
    if configuration.baseline is None:
        return None, None
    if any(part.shows_baseline for part in configuration.parts.values()) or os.environ.get("GITHUB_STEP_SUMMARY"):
        run = load_run(configuration.baseline)
        return build_outcomes(run), run
    with closing(StoredRun(configuration.baseline)) as stored:
        return list(iter_outcomes(stored.run, stored.iter_verdicts())), None


def measure_features(
    configuration: Configuration, outcomes: Iterable[CaseOutcome]
) -> tuple[dict[str, JsonDict], list[str]]:
    """Return what features measure of the run for the gate, by their names, and the errors of those that raise."""
    kept: dict[str, list[Any]] = {}
    for outcome in outcomes:
        for name, value in outcome.features.items():
            kept.setdefault(name, []).append(value)
    measured: dict[str, JsonDict] = {}
    errors: list[str] = []
    for name, feature in iter_known(kept):
        run = EndedRun(
            kept=tuple(kept[name]),
            policy=configuration.policy,
            settings=configuration.settings,
            options=configuration.tables,
        )
        try:
            with name_errors(name):
                data = feature.measure(run)
        except EvalkitError as error:
            errors.append(str(error))
            continue
        if data is not None:
            measured[name] = data
    return measured, errors


def publish(configuration: Configuration, decision: GateDecision, baseline: Run | None) -> Iterator[Published]:
    """Write and send the reports that are asked for; yield what could not be written or sent, and what was."""
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if not (summary or configuration.parts):
        return
    report = finished.FinishedRun(configuration.results, decision, baseline, configuration.parts)
    for name, part in configuration.parts.items():
        yield from _publish_part(name, part, report)
    if summary:
        try:
            with Path(summary).open("a", encoding="utf-8", newline="\n") as file:
                source = finished.ReportInput(run=report.run, decision=decision, baseline=baseline)
                file.writelines((*table.REPORTS["markdown"].render(source), "\n"))
        except OSError as error:
            yield Loss(STEP_SUMMARY, str(error))


def _publish_part(name: str, part: SessionPart, report: FinishedRun) -> Iterator[Published]:
    """Let a feature publish the run. What it raises is a loss that names it."""
    try:
        yield from part.publish(report)
    except Exception as error:
        yield Loss(f"the report of feature '{name}'", f"{type(error).__name__}: {error}")


def drop_reruns_from_junit(file: Path) -> None:
    """Leave the last testcase of each case in pytest's JUnit file: where another plugin reruns tests, pytest writes one
    for each attempt, and those before the last, which say nothing of how they ended, count as passed for its readers.
    """
    text = file.read_text("utf-8")
    test_cases = [match for match in _TESTCASE.finditer(text) if '<property name="evalkit_status"' in match[0]]
    last = {match["names"]: match for match in test_cases}
    dropped = [match for match in test_cases if match is not last[match["names"]]]
    for match in reversed(dropped):
        text = text[: match.start()] + text[match.end() :]
    remaining = text.count("<testcase ")

    def subtract(count: re.Match[str]) -> str:
        tag = count["tag"].removesuffix("s")  # failures, errors, skipped
        number = int(count["number"])
        if count["tag"] == "tests":  # pytest leaves out attempts that are run again
            number = min(number, remaining)
        else:
            number -= sum(match[0].count(f"<{tag} ") for match in dropped)
        return f'{count["tag"]}="{number}"'

    suite = _TESTSUITE.search(text)
    if suite is not None:
        text = text[: suite.start()] + _COUNT.sub(subtract, suite[0]) + text[suite.end() :]
    file.write_text(text, "utf-8")


def build_annotations(configuration: Configuration) -> list[str]:
    """Return lines that a GitHub runner turns into annotations at the cases' files; none anywhere else."""
    if os.environ.get("GITHUB_ACTIONS") != "true":
        return []
    top = Path(os.environ.get("GITHUB_WORKSPACE") or configuration.root)
    bad = tuple(verdict for verdict in read_verdicts(configuration.results) if verdict.status in (FAILED, ERROR))
    folder = configuration.root.relative_to(top).as_posix() if configuration.root.is_relative_to(top) else ""
    source = finished.ReportInput(run=Run(verdicts=bad), folder="" if folder == "." else folder)
    annotations = "".join(table.REPORTS["github"].render(source))
    return annotations.split("\n") if annotations else []
