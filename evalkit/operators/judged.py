"""`$judge`: a value that a model grades by a criterion in words.

Nothing here asks a model. While calls are matched, a criterion that is not graded yet holds for any value; what it held
for, in the calls that met their expectations, are the `Question`s that the runner has graded. With their grades in the
transcript everything is judged again: a value that does not meet its criterion does not match, and another call may.
Grades are known by criterion and value, so that judging stays a function of the transcript.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from msgspec import Struct

from evalkit.errors import KeyPath
from evalkit.jsonvalue import JsonValue, is_list, is_mapping
from evalkit.operators.base import JUDGE, Matcher, Operand, Operator, Undecided, Wrapper
from evalkit.operators.lists import Each
from evalkit.operators.logic import AllOf, AnyOf
from evalkit.operators.values import ListMatcher, MappingMatcher
from evalkit.records.codec import to_plain_json
from evalkit.records.rubric import Rubric, RubricError, parse_rubric
from evalkit.records.settings import split_graders
from evalkit.records.transcript import Grade, Grading
from evalkit.text.format import format_value


class Question(Struct, frozen=True):
    """A value that a model is to grade. `path` leads to it, from ``arguments`` or ``result``."""

    rubric: Rubric
    value: object
    path: KeyPath
    subject: str  # what messages call the place: "call 2, send_email: arguments.body"


class GradeBook:
    """The grades that are known while a transcript is judged, and the questions that decided."""

    def __init__(self, gradings: Iterable[Grading]) -> None:
        self.gradings = [grading for grading in gradings if grading.place == JUDGE]
        self._graded = {
            _make_key(grade.criterion if grade.rubric is None else grade.rubric, _get_value(grade)): (grade, grading)
            for grading in self.gradings
            for grade in grading.grades
        }
        self.questions: list[Question] = []
        self.problems: dict[str, None] = {}  # why something could not be measured

    def find(self, rubric: Rubric, value: object) -> tuple[Grade, Grading] | None:
        """Return the grade of a value, and of what grading it is a part; None if it has none."""
        return self._graded.get(_make_key(rubric.to_data(), value))

    def list_open(self) -> list[Question]:
        """Return the questions without a grade, each value and criterion once."""
        keys = {_make_key(question.rubric.to_data(), question.value): question for question in reversed(self.questions)}
        return [question for key, question in reversed(keys.items()) if key not in self._graded]


def _get_value(grade: Grade) -> object:
    value: object = grade.value
    for name in grade.names:
        value = value.get(name) if isinstance(value, dict) else None  # a record without its secrets has lost it
    return value


def _make_key(rubric: object, value: object) -> str:
    return json.dumps([rubric, to_plain_json(value)], sort_keys=True)


_book: ContextVar[GradeBook | None] = ContextVar("evalkit_grade_book", default=None)
_open_questions: ContextVar[list[Question] | None] = ContextVar("evalkit_open_questions", default=None)


@contextmanager
def use_grades(gradings: Iterable[Grading]) -> Iterator[GradeBook]:
    """Judge with these grades. Values without one match, and are among the open questions."""
    book = GradeBook(gradings)
    token = _book.set(book)
    try:
        yield book
    finally:
        _book.reset(token)
        collected = _open_questions.get()
        if collected is not None:
            collected += book.list_open()


def report_problem(message: str) -> bool:
    """Record why a value could not be compared: what is being judged is an error. False where nothing is judged."""
    book = _book.get()
    if book is not None:
        book.problems[message] = None
    return book is not None


@contextmanager
def collect_questions() -> Iterator[list[Question]]:
    """Collect the open questions of all that is judged meanwhile."""
    questions: list[Question] = []
    token = _open_questions.set(questions)
    try:
        yield questions
    finally:
        _open_questions.reset(token)


def record_questions(matcher: Matcher, actual: object, path: KeyPath, subject: str) -> None:
    """Record which criteria decided that `actual` matches."""
    book = _book.get()
    if book is not None:
        book.questions += _find_questions(matcher, actual, path, subject)


def _find_questions(matcher: Matcher, actual: object, path: KeyPath, subject: str) -> Iterator[Question]:
    parts: Iterable[tuple[Matcher, object, KeyPath]] = ()
    if isinstance(matcher, Judged):
        yield Question(matcher.rubric, actual, path, subject)
    elif isinstance(matcher, MappingMatcher) and is_mapping(actual):
        parts = [(item, actual[key], (*path, key)) for key, item in matcher.items if key in actual]
    elif isinstance(matcher, ListMatcher) and is_list(actual):
        parts = [(item, actual[place], (*path, place)) for place, item in enumerate(matcher.items)]
    elif isinstance(matcher, Each) and is_list(actual):
        parts = [(matcher.inner, item, (*path, place)) for place, item in enumerate(actual)]
    elif isinstance(matcher, AllOf):
        parts = [(item, actual, path) for item in matcher.items]
    elif isinstance(matcher, AnyOf):
        parts = [(item, actual, path) for item in matcher.items if item.is_match(actual)][:1]
    elif isinstance(matcher, Wrapper):  # of the same value: $default, $partial; under others $judge can't stand
        parts = [(matcher.inner, actual, path)]
    for part, value, place in parts:
        yield from _find_questions(part, value, place, subject)


class Judged(Matcher, frozen=True):
    """A value that a model says meets a criterion; any value, as long as no model has said anything."""

    rubric: Rubric

    def evaluate(self, actual: object) -> bool:
        book = _book.get()
        if book is None:
            raise Undecided(f"{JUDGE} is for a model to grade, after a run")
        grade = book.find(self.rubric, actual)
        return grade is None or grade[0].passed

    def describe_fully(self) -> str:
        return f"a value that meets {quote(str(self.rubric.text))}"

    def to_data(self) -> JsonValue:
        return {JUDGE: self.rubric.to_data()}

    def describe_mismatch(self, actual: object) -> str:
        book = _book.get()
        recorded_grade = book.find(self.rubric, actual) if book is not None else None
        if recorded_grade is None:
            return Matcher.describe_mismatch(self, actual)
        grade, grading = recorded_grade
        words, reason = describe_criterion(grade, self.rubric), describe_grade(grade).rstrip(".")
        return f"not met: {words} ({describe_grader(grading)}){reason}; got {format_value(actual)}"


# ---- words ----


def describe_grader(grading: Grading) -> str:
    """Return who graded, so that nobody takes the result for that of a deterministic check."""
    if grading.is_hand_written:
        return "hand-written grade"
    recorded = ", recorded" if grading.cassette else ""
    graders = [name.partition("?")[0] for name in split_graders(grading.grader)] or ["a model"]
    return f"graded by {', '.join(graders)}{recorded}"


def describe_criterion(grade: Grade, rubric: Rubric) -> str:
    """Return the words of a criterion, with the score that it was given."""
    words = quote(grade.criterion)
    if grade.score is None or rubric.at_least is None:
        return words
    return f"{words} scored {grade.score} of {rubric.format_scale()}, expected at least {rubric.at_least}"


def describe_grade(grade: Grade) -> str:
    """Return the reason of a grade, and the votes of a panel that disagrees, as the end of a sentence."""
    reason = f": {grade.reason}" if grade.reason else ""
    if not grade.is_split:
        return reason
    met = sum(vote.passed for vote in grade.votes)
    dissent = next(vote for vote in grade.votes if vote.passed is not grade.passed)
    name = (dissent.grader or "a model").partition("?")[0]
    explanation = f": {dissent.reason}" if dissent.reason else ""
    return f"{reason} ({met} of {len(grade.votes)} votes say that it is met; {name} disagrees{explanation})"


def quote(text: str) -> str:
    """Return a criterion in quotation marks, on one line."""
    return f'"{" ".join(text.split())}"'


def quote_value(value: object) -> str:
    """Write the value of a template in a criterion as JSON."""
    return json.dumps(value, ensure_ascii=False, default=repr)


# ---- how it is built ----


def _build_judged(operand: Operand) -> Matcher:
    try:
        return Judged(parse_rubric(operand.value))
    except RubricError as error:
        path = (*operand.path, *error.path) if operand.path else ()
        return operand.compiler.add_problem(path, f"{JUDGE}: {error}", at_key=error.at_key)


def _propose(operand: object) -> Sequence[object]:
    return ["a text of which a model would have to say whether it will do"]


KEYS = (
    Operator(
        name=JUDGE,
        example={JUDGE: "apologises without promising a refund"},
        doc="a value that a model says meets this criterion, once all else holds",
        build=_build_judged,
        synonyms=("$llm", "$rubric", "$criterion", "$graded"),
        propose=_propose,
    ),
)
