"""What graders did and took in a run, and what reports say of it."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from evalkit.features.graders.records import KEY, Grading, get_gradings
from evalkit.hooks import RunReport
from evalkit.records.transcript import Transcript
from evalkit.stats.accounting import SideUsage


def account(transcript: Transcript) -> SideUsage:
    """Return what models took to grade a run, when they were asked or recorded."""
    return sum_usage(get_gradings(transcript))


def sum_usage(gradings: Sequence[Grading]) -> SideUsage:
    """Count criteria, those that are not met, written by hand, and split, and the answers of models."""
    total = SideUsage(counts={"graded": 0, "not_met": 0, "hand_written": 0, "answers": 0})
    for grading in gradings:
        is_live = grading.grader is not None and grading.cassette is None
        total += replace(_count(grading), is_live=is_live)
    return total


def _count(grading: Grading) -> SideUsage:
    grades = grading.grades
    if not grades and grading.usage is None:
        return SideUsage()
    split = sum(grade.is_split for grade in grades)
    counts = {
        "graded": len(grades),
        "not_met": sum(not grade.passed for grade in grades),
        **({"split": split} if split else {}),
    }
    if grading.is_hand_written:
        return SideUsage(counts={**counts, "hand_written": len(grades)})
    return SideUsage(
        counts={**counts, "answers": max([1, *(len(grade.votes) for grade in grades)])},
        usage=grading.usage,
        cost_usd=grading.cost_usd,
    )


def describe_usage(total: SideUsage) -> str:
    """Return ``judge: 12 criteria graded, 9 met; 4,200 tokens in and 310 out, 0.012 USD``."""
    graded = total.counts["graded"]
    if not graded:
        return ""
    parts = [f"{graded} {'criterion' if graded == 1 else 'criteria'} graded"]
    if total.counts.get("not_met"):
        parts.append(f"{graded - total.counts['not_met']} met")
    for name, words in (("split", "with split votes"), ("hand_written", "by hand")):
        if total.counts.get(name):
            parts.append(f"{total.counts[name]} {words}")
    summary = f"{KEY}: {', '.join(parts)}"
    return f"{summary}; {total.describe()}" if total.counts["answers"] else summary


def report_run(transcript: Transcript) -> RunReport:
    """Return who graded a run, and the tokens and money it took."""
    gradings, taken = get_gradings(transcript), account(transcript)
    if not taken.counts["answers"]:
        return RunReport(facts={"graded by": "hand"} if taken.counts["hand_written"] else {})
    graders = dict.fromkeys(grading.grader or "a model" for grading in gradings if grading.grades)
    facts = {"graded by": ", ".join(graders)}
    if taken.usage is not None:
        facts["grader's tokens"] = f"{taken.usage.input_tokens:,} in, {taken.usage.output_tokens:,} out"
    if taken.cost_usd:
        facts["grader's cost"] = f"${taken.cost_usd:.6f}"
    return RunReport(facts=facts)
