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

from evalkit.checks.evidence import Evidence
from evalkit.checks.expectation import Expectation
from evalkit.checks.reading import Path, Reader
from evalkit.checks.reasons import NOT_JUDGED, failed, place_of, readable, run_reason, unmeasured
from evalkit.checks.references import check_references, resolver
from evalkit.model.template import Reference, Template, TemplateError, parse
from evalkit.model.transcript import Grade, Grading, Transcript
from evalkit.model.verdict import FAILED, CheckResult

KEY = "judge"


class ModelGraded(Struct, frozen=True):
    """The criteria at one `judge`. `is_list`: written as a list, so that each has a place of its own."""

    criteria: tuple[str | Template, ...]
    path: Path
    is_list: bool = True

    key = KEY

    def judge(self, evidence: Evidence) -> list[CheckResult]:
        """A result for each criterion, or one that says why there are no grades."""
        place = place_of(self.path)
        grading = next((it for it in evidence.transcript.gradings if it.place == place), None)
        if grading is None and evidence.mode == KEY:
            told = "not judged: {} is for a model to grade, in a run"
            return [unmeasured(KEY, told.format(_quoted(str(it))), place, KEY) for it in self.criteria]
        if grading is not None and grading.skipped:
            return [CheckResult(check=KEY, status=NOT_JUDGED, message=grading.skipped)]
        if grading is not None and grading.fault is not None:
            fault = grading.fault
            if fault.measured:
                return [failed(KEY, fault.code, f"{KEY}: {fault.message}", place)]
            return [unmeasured(KEY, f"can't be graded: {fault.message}", place, "run", fault.code)]
        if grading is None or not self._are_of_these(grading.grades):
            return [unmeasured(KEY, "can't be judged: no model has graded it", place, "run")]
        return [self._result(number, grade, grading) for number, grade in enumerate(grading.grades)]

    def _are_of_these(self, grades: Sequence[Grade]) -> bool:
        """What a template stood for is not known here; the other words must be those that were graded."""
        return len(grades) == len(self.criteria) and all(
            criterion == grade.criterion
            for criterion, grade in zip(self.criteria, grades, strict=True)
            if isinstance(criterion, str)
        )

    def _result(self, number: int, grade: Grade, grading: Grading) -> CheckResult:
        by = graded_by(grading)
        words, why = _quoted(grade.criterion), f": {grade.reason}" if grade.reason else ""
        message = readable(f"{_whose(self.path)}{words}{why}")
        if grade.passed:
            return CheckResult(check=KEY, message=message, note=by)
        place = place_of((*self.path, number) if self.is_list else self.path)
        told = f"{KEY}: not met: {words} ({by}){why}"
        reason = run_reason("judge_failed", told, place, expected=grade.criterion, actual=grade.reason)
        return CheckResult(check=KEY, status=FAILED, message=message, reasons=(reason,), note=by)

    def rendered(self, resolve: Callable[[Reference], Any]) -> tuple[str, ...]:
        """The criteria as a model is asked them. Raises TemplateError for a reference that leads nowhere."""
        return tuple(it if isinstance(it, str) else "".join(_parts(it, resolve)) for it in self.criteria)


def graded_by(grading: Grading) -> str:
    """Who graded, as reports say it: never to be mistaken for a check that gives the same result each time."""
    if grading.is_hand_written:
        return "hand-written grade"
    recorded = ", recorded" if grading.cassette else ""
    return f"graded by {(grading.grader or 'a model').partition('?')[0]}{recorded}"


def criteria_of(
    expectation: Expectation, transcript: Transcript, given: Any, user_turn: int | None = None
) -> tuple[str, ...]:
    """The criteria of `expectation`, which has some, for what happened up to `user_turn`. Raises TemplateError."""
    assert expectation.graded is not None
    calls = tuple(call for call in transcript.calls if user_turn is None or call.user_turn <= user_turn)
    return expectation.graded.rendered(resolver(calls, given, expectation.aliases))


def read_graded(reader: Reader, path: Path, value: Any) -> ModelGraded | None:
    """A criterion, or a list of them. A mapping is words with a colon that nobody quoted: ``tone: it is friendly``."""
    is_list = isinstance(value, list)
    items = value if is_list else [value]
    criteria: list[str | Template] = []
    for index, item in enumerate(items):
        at = (*path, index) if is_list else path
        if not (isinstance(item, str) and item.strip()) and not (isinstance(item, dict) and item):
            reader.wrong(at, item, "a criterion in words, or a mapping")
            continue
        check_references(reader, at, item)
        try:
            criteria.append(parse(_words(item)))
        except TemplateError as error:
            reader.problem(at, f"{reader.shown(at)}: {error}")
    if not items:
        reader.problem(
            path, f"{reader.shown(path)} is an empty list, which demands nothing; list a criterion, or leave it out"
        )
    return ModelGraded(tuple(criteria), path, is_list) if criteria else None


def _words(item: Any) -> str:
    if isinstance(item, str):
        return item.strip()
    return "; ".join(
        f"{key}: {told if isinstance(told, str) else json.dumps(told, ensure_ascii=False)}"
        for key, told in item.items()
    )


def _parts(template: Template, resolve: Callable[[Reference], Any]) -> Iterator[str]:
    for part in template.parts:
        yield part if isinstance(part, str) else json.dumps(resolve(part), ensure_ascii=False, default=repr)


def _quoted(text: str) -> str:
    return f'"{" ".join(text.split())}"'


def _whose(path: Path) -> str:
    """``user turn 2: `` for what is expected of one; reasons of a turn are told so where the turns are judged."""
    return f"user turn {int(path[2]) + 1}: " if path[:2] == ("input", "turns") else ""
