"""What a model graded, marked as such wherever it is told: in a trace a line per criterion, over a run one line."""

from __future__ import annotations

from evalkit.model.transcript import Transcript
from evalkit.model.verdict import ERROR, FAILED, PASSED, Verdict
from evalkit.reports.hostile import escape_lines
from evalkit.reports.spans import Line
from evalkit.stats.grades import Grades

JUDGE_CHECK = "judge"
_GRADE_MARKS = {PASSED: ("✓", "good"), FAILED: ("✗", "bad"), ERROR: ("!", "error")}


def build_grade_lines(verdict: Verdict) -> list[Line]:
    """``✓ judge: "The tone is friendly.": it thanks the customer (graded by gemini:x)``."""
    grade_lines: list[Line] = []
    for result in verdict.checks:
        if result.check != JUDGE_CHECK:
            continue
        mark, style = _GRADE_MARKS.get(result.status, ("–", "quiet"))
        first, *continuation = escape_lines(result.message).split("\n")
        by = ((f" ({escape_lines(result.note)})", "quiet"),) if result.note else ()
        words = "" if result.status == PASSED else style
        grade_lines.append((("  ", ""), (f"{mark} ", style), (f"{JUDGE_CHECK}: {first}", words), *by))
        grade_lines += [((f"    {line}", style),) for line in continuation]
    return grade_lines


def collect_grade_reasons(verdict: Verdict) -> set[tuple[str, str, int | None]]:
    """Code, message and call of the reasons that `graded_lines` shows."""
    reasons = (reason for result in verdict.checks if result.check == JUDGE_CHECK for reason in result.reasons)
    return {(reason.code, reason.message, reason.call) for reason in reasons}


def describe_grader(transcript: Transcript) -> dict[str, str]:
    """Who graded a run, and what that took."""
    grades = Grades().with_gradings(transcript.gradings)
    if not grades.answers:
        return {"graded by": "hand"} if grades.hand_written else {}
    graders = dict.fromkeys(grading.grader or "a model" for grading in transcript.gradings if grading.grades)
    facts = {"graded by": ", ".join(graders)}
    if grades.usage is not None:
        facts["grader's tokens"] = f"{grades.usage.input_tokens:,} in, {grades.usage.output_tokens:,} out"
    if grades.cost_usd:
        facts["grader's cost"] = f"${grades.cost_usd:.6f}"
    return facts


def format_grades(grades: Grades) -> str:
    """``judge: 12 criteria graded, 3 of them not met; 4,200 tokens in and 310 out, 0.012 USD``."""
    parts = [f"{grades.graded} {'criterion' if grades.graded == 1 else 'criteria'} graded"]
    if grades.not_met:
        parts.append(f"{grades.not_met} not met")
    if grades.hand_written:
        parts.append(f"{grades.hand_written} by hand")
    summary = f"{JUDGE_CHECK}: {', '.join(parts)}"
    if not grades.answers:
        return summary
    usage, cost = grades.usage, grades.cost_usd
    tokens = "tokens unknown"
    if usage is not None:
        tokens = f"{usage.input_tokens:,} tokens in and {usage.output_tokens + usage.reasoning_tokens:,} out"
    return f"{summary}; {tokens}, {'cost unknown' if cost is None else f'{cost:.4g} USD'}"
