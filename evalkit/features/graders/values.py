"""`$judge`: a value that a model grades by a criterion in words.

Nothing here asks a model. While calls are matched, a criterion that is not graded yet holds for any value; what it held
for, in the calls that met their expectations, are the `Question`s that `grading` asks. With their grades in the
transcript everything is judged again: a value that does not meet its criterion does not match, and another call may.
Grades are known by criterion and value, so that judging stays a function of the transcript.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from msgspec import Struct

from evalkit.checks.reasons import NOT_JUDGED, build_unmeasured, escape_surrogates
from evalkit.errors import KeyPath, format_path
from evalkit.features.graders.records import CODE, KEY, NAME, OPERATOR, Grade, Grading, read_gradings
from evalkit.features.graders.rubric import Rubric, RubricError, parse_rubric
from evalkit.features.graders.words import describe_criterion, describe_grade, describe_grader, quote
from evalkit.jsonvalue import JsonValue
from evalkit.operators.base import Matcher, Operand, Operator, Undecided
from evalkit.operators.late import LateValues
from evalkit.records.codec import to_plain_json
from evalkit.records.verdict import CheckResult
from evalkit.text.format import format_value


class Question(Struct, frozen=True):
    """A value that a model is to grade. `path` leads to it, from ``arguments`` or ``result``."""

    rubric: Rubric
    value: object
    path: KeyPath
    subject: str  # what messages call the place: "call 2, send_email: arguments.body"


class OpenCriteria(Struct, frozen=True):
    """The criteria of one `judge` that a model is to grade on what happened up to `user_turn`; None: on the whole.

    `problem`: what no value was found for in their templates.
    """

    place: str
    criteria: tuple[Rubric, ...]
    user_turn: int | None = None
    problem: str = ""


class GradeBook(LateValues):
    """The grades that are known while a transcript is judged, and what is to be graded."""

    feature = NAME

    def __init__(self, answers: object, left_open: str = "") -> None:
        super().__init__(answers, left_open)
        gradings = read_gradings(answers)
        self.questions: list[Question] = []
        self.open_criteria: list[OpenCriteria] = []
        self._by_place = {grading.place: grading for grading in reversed(gradings)}
        self._of_values = [grading for grading in gradings if grading.place == OPERATOR]
        self._graded = {
            _make_key(grade.criterion if grade.rubric is None else grade.rubric, _get_value(grade)): (grade, grading)
            for grading in self._of_values
            for grade in grading.grades
        }

    def find(self, rubric: Rubric, value: object) -> tuple[Grade, Grading] | None:
        """Return the grade of a value, and of what grading it is a part; None if it has none."""
        return self._graded.get(_make_key(rubric.to_data(), value))

    def find_grading(self, place: str) -> Grading | None:
        """Return the grading of the criteria that stand at `place`; None if there is none."""
        return self._by_place.get(place)

    def add(self, matcher: Matcher, value: object, path: KeyPath, subject: str) -> None:
        assert isinstance(matcher, Judged)
        self.questions.append(Question(matcher.rubric, value, path, subject))

    def list_open_values(self) -> list[Question]:
        """Return the questions without a grade, each value and criterion once."""
        keys = {_make_key(question.rubric.to_data(), question.value): question for question in reversed(self.questions)}
        return [question for key, question in reversed(keys.items()) if key not in self._graded]

    def list_open(self) -> list[Question | OpenCriteria]:
        return [*self.list_open_values(), *self.open_criteria]

    def report(self, mode: str) -> list[CheckResult]:
        """Build the results on what matched: of graded values, of those that can't be, of those not judged."""
        results = []
        for question in self.questions:
            known = self.find(question.rubric, question.value)
            if known is not None:
                grade, grading = known
                words = f"{describe_criterion(grade, question.rubric)}{describe_grade(grade)}"
                message = escape_surrogates(f"{question.subject}{format_path(question.path)}: {words}")
                results.append(CheckResult(check=KEY, message=message, note=describe_grader(grading)))
        if is_open := self.list_open_values():
            results += self._report_open(is_open, mode)
        return list(dict.fromkeys(results))

    def _report_open(self, questions: Sequence[Question], mode: str) -> Iterator[CheckResult]:
        """Build the results for values without a grade: an error, unless nobody is asked yet."""
        fault = next((grading.fault for grading in self._of_values if grading.fault is not None), None)
        if fault is not None:
            yield build_unmeasured(KEY, f"can't be graded: {fault.message}", "", "run", fault.code)
        else:
            yield from self.build_ungraded([question.rubric for question in questions], "", mode)

    def build_ungraded(self, criteria: Sequence[Rubric], place: str, mode: str) -> list[CheckResult]:
        """Build the results for criteria that nobody has graded."""
        if self.left_open:
            return [CheckResult(check=KEY, status=NOT_JUDGED, message=f"not graded: {self.left_open}")]
        if mode == "judge":
            texts = [quote(str(rubric.text)) for rubric in criteria]
            message = "not judged: {} is for a model to grade, in a run"
            return [build_unmeasured(KEY, message.format(text), place, "judge") for text in texts]
        return [build_unmeasured(KEY, "can't be judged: no model has graded it", place, "run")]


def _get_value(grade: Grade) -> object:
    value: object = grade.value
    for name in grade.names:
        value = value.get(name) if isinstance(value, dict) else None  # a record without its secrets has lost it
    return value


def _make_key(rubric: object, value: object) -> str:
    return json.dumps([rubric, to_plain_json(value)], sort_keys=True)


class Judged(Matcher, frozen=True):
    """A value that a model says meets a criterion; any value, as long as no model has said anything."""

    rubric: Rubric
    late_feature = NAME

    def evaluate(self, actual: object) -> bool:
        book = GradeBook.get_current()
        if book is None:
            raise Undecided(f"{OPERATOR} is for a model to grade, after a run")
        grade = book.find(self.rubric, actual)
        return grade is None or grade[0].passed

    def describe_fully(self) -> str:
        return f"a value that meets {quote(str(self.rubric.text))}"

    def to_data(self) -> JsonValue:
        return {OPERATOR: self.rubric.to_data()}

    def describe_mismatch(self, actual: object) -> str:
        book = GradeBook.get_current()
        recorded_grade = book.find(self.rubric, actual) if book is not None else None
        if recorded_grade is None:
            return Matcher.describe_mismatch(self, actual)
        grade, grading = recorded_grade
        words, reason = describe_criterion(grade, self.rubric), describe_grade(grade).rstrip(".")
        return f"not met: {words} ({describe_grader(grading)}){reason}; got {format_value(actual)}"


def _build_judged(operand: Operand) -> Matcher:
    try:
        return Judged(parse_rubric(operand.value))
    except RubricError as error:
        path = (*operand.path, *error.path) if operand.path else ()
        return operand.compiler.add_problem(path, f"{OPERATOR}: {error}", at_key=error.at_key)


def _propose(operand: object) -> Sequence[object]:
    return ["a text of which a model would have to say whether it will do"]


JUDGE_OPERATOR = Operator(
    name=OPERATOR,
    example={OPERATOR: "apologises without promising a refund"},
    doc="a value that a model says meets this criterion, once all else holds",
    build=_build_judged,
    synonyms=("$llm", "$rubric", "$criterion", "$graded"),
    propose=_propose,
    code=CODE,
)
