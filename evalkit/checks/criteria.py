"""`judge`: criteria in words, which a model grades after the run. Here its grades become results.

Nothing here asks a model. Who runs a case does, and puts the grades into the transcript; a criterion that has none is
an error, never a pass. Criteria are words of the case's author. What a template in them stands for is not: it is put in
as JSON, so that a text in quotes is all that it can be.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from msgspec import Struct

from evalkit.checks.evidence import Evidence, build_resolver, check_references
from evalkit.checks.expectation import Expectation
from evalkit.checks.reader import ExpectationReader
from evalkit.checks.reasons import (
    NOT_JUDGED,
    build_run_failure,
    build_run_reason,
    build_unmeasured,
    escape_surrogates,
    format_place,
)
from evalkit.errors import KeyPath
from evalkit.model.template import Reference, Template, TemplateError, parse_template
from evalkit.model.transcript import Grade, Grading, Transcript
from evalkit.model.verdict import FAILED, CheckResult

KEY = "judge"


class JudgeCriteria(Struct, frozen=True):
    """The criteria at one `judge`. `is_list`: written as a list, so that each has a place of its own."""

    criteria: tuple[str | Template, ...]
    path: KeyPath
    is_list: bool = True

    key = KEY

    def judge(self, evidence: Evidence) -> list[CheckResult]:
        """A result for each criterion, or one that says why there are no grades."""
        place = format_place(self.path)
        grading = next((criterion for criterion in evidence.transcript.gradings if criterion.place == place), None)
        if grading is None and evidence.mode == KEY:
            message = "not judged: {} is for a model to grade, in a run"
            return [
                build_unmeasured(KEY, message.format(_quote(str(criterion))), place, KEY) for criterion in self.criteria
            ]
        if grading is not None and grading.skipped:
            return [CheckResult(check=KEY, status=NOT_JUDGED, message=grading.skipped)]
        if grading is not None and grading.fault is not None:
            fault = grading.fault
            if fault.measured:
                return [build_run_failure(KEY, fault.code, f"{KEY}: {fault.message}", place)]
            return [build_unmeasured(KEY, f"can't be graded: {fault.message}", place, "run", fault.code)]
        if grading is None or not self._has_criteria_of(grading.grades):
            return [build_unmeasured(KEY, "can't be judged: no model has graded it", place, "run")]
        return [self._build_result(number, grade, grading) for number, grade in enumerate(grading.grades)]

    def _has_criteria_of(self, grades: Sequence[Grade]) -> bool:
        """What a template stood for is not known here; the other words must be those that were graded."""
        return len(grades) == len(self.criteria) and all(
            criterion == grade.criterion
            for criterion, grade in zip(self.criteria, grades, strict=True)
            if isinstance(criterion, str)
        )

    def _build_result(self, number: int, grade: Grade, grading: Grading) -> CheckResult:
        by = describe_grader(grading)
        words, why = _quote(grade.criterion), f": {grade.reason}" if grade.reason else ""
        message = escape_surrogates(f"{_format_turn_prefix(self.path)}{words}{why}")
        if grade.passed:
            return CheckResult(check=KEY, message=message, note=by)
        place = format_place((*self.path, number) if self.is_list else self.path)
        failure = f"{KEY}: not met: {words} ({by}){why}"
        reason = build_run_reason("judge_failed", failure, place, expected=grade.criterion, actual=grade.reason)
        return CheckResult(check=KEY, status=FAILED, message=message, reasons=(reason,), note=by)

    def render(self, resolve: Callable[[Reference], Any]) -> tuple[str, ...]:
        """The criteria as a model is asked them. Raises TemplateError for a reference that leads nowhere."""
        return tuple(
            criterion if isinstance(criterion, str) else "".join(_render_parts(criterion, resolve))
            for criterion in self.criteria
        )


def describe_grader(grading: Grading) -> str:
    """Who graded, as reports say it: never to be mistaken for a check that gives the same result each time."""
    if grading.is_hand_written:
        return "hand-written grade"
    recorded = ", recorded" if grading.cassette else ""
    return f"graded by {(grading.grader or 'a model').partition('?')[0]}{recorded}"


def resolve_criteria(
    expectation: Expectation, transcript: Transcript, case_input: Any, user_turn: int | None = None
) -> tuple[str, ...]:
    """The criteria of `expectation`, which has some, for what happened up to `user_turn`. Raises TemplateError."""
    assert expectation.graded is not None
    calls = tuple(call for call in transcript.calls if user_turn is None or call.user_turn <= user_turn)
    return expectation.graded.render(build_resolver(calls, case_input, expectation.aliases))


def read_criteria(reader: ExpectationReader, path: KeyPath, value: Any) -> JudgeCriteria | None:
    """A criterion, or a list of them. A mapping is words with a colon that nobody quoted: ``tone: it is friendly``."""
    is_list = isinstance(value, list)
    items = value if is_list else [value]
    criteria: list[str | Template] = []
    for index, item in enumerate(items):
        at = (*path, index) if is_list else path
        if not (isinstance(item, str) and item.strip()) and not (isinstance(item, dict) and item):
            reader.report_wrong(at, item, "a criterion in words, or a mapping")
            continue
        check_references(reader, at, item)
        try:
            criteria.append(parse_template(_format_words(item)))
        except TemplateError as error:
            reader.add_problem(at, f"{reader.format_place(at)}: {error}")
    if not items:
        reader.add_problem(
            path,
            f"{reader.format_place(path)} is an empty list, which demands nothing; list a criterion, or leave it out",
        )
    return JudgeCriteria(tuple(criteria), path, is_list) if criteria else None


def _format_words(item: Any) -> str:
    if isinstance(item, str):
        return item.strip()
    return "; ".join(
        f"{key}: {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
        for key, value in item.items()
    )


def _render_parts(template: Template, resolve: Callable[[Reference], Any]) -> Iterator[str]:
    for part in template.parts:
        yield part if isinstance(part, str) else json.dumps(resolve(part), ensure_ascii=False, default=repr)


def _quote(text: str) -> str:
    return f'"{" ".join(text.split())}"'


def _format_turn_prefix(path: KeyPath) -> str:
    """``user turn 2: `` for what is expected of one; reasons of a turn are told so where the turns are judged."""
    return f"user turn {int(path[2]) + 1}: " if path[:2] == ("input", "turns") else ""
