"""How messages and reports word grades."""

from __future__ import annotations

from evalkit.features.graders.records import Grade, Grading
from evalkit.features.graders.rubric import Rubric
from evalkit.records.settings import split_models


def describe_grader(grading: Grading) -> str:
    """Return who graded, so that nobody takes the result for that of a deterministic check."""
    if grading.is_hand_written:
        return "hand-written grade"
    recorded = ", recorded" if grading.cassette else ""
    graders = [name.partition("?")[0] for name in split_models(grading.grader)] or ["a model"]
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
