"""Every example of docs/expectations.md is run: the expectation, what happened, and the messages that are printed."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from evalkit.checks.compile import compile_expectation
from evalkit.features.graders.records import Grade, Grading, put_gradings
from evalkit.features.graders.rubric import parse_rubric
from evalkit.records.transcript import FunctionCall, Timing, Transcript
from evalkit.yamlfile.parse import load

DOCUMENT = Path(__file__).parents[2] / "docs" / "expectations.md"
EXAMPLE = re.compile(r"```yaml\n(.*?)```\n+(Given .*?):\n\n```text\n(.*?)```", re.DOTALL)
CALL = re.compile(
    r"`([a-zA-Z_]+\(.*?\))(?: → (\{.*?\}))?`(?: in turn (\d+))?(?: in (\d+) ms)?(?: by (\w+))?", re.DOTALL
)


class Example(NamedTuple):
    expected: str
    given: str
    messages: str


def examples() -> Iterator[Any]:
    for match in EXAMPLE.finditer(DOCUMENT.read_text(encoding="utf-8")):
        yield pytest.param(Example(*match.groups()), id=" ".join(match[1].split())[:60])


def called(expression: str) -> tuple[str, dict[str, Any]]:
    """``f(a=1)`` as a name and arguments."""
    call = ast.parse(expression, mode="eval").body
    assert isinstance(call, ast.Call)
    assert isinstance(call.func, ast.Name)
    return call.func.id, {word.arg: ast.literal_eval(word.value) for word in call.keywords if word.arg}


def calls_in(given: str) -> Iterator[FunctionCall]:
    for index, (expression, result, turn, ms, agent) in enumerate(CALL.findall(given)):
        name, arguments = called(expression)
        yield FunctionCall(
            name=name,
            arguments=arguments,
            index=index,
            result=json.loads(result) if result else None,
            turn=int(turn) - 1 if turn else None,
            duration_ms=float(ms or 0),
            agent=agent or None,
        )


def transcript(given: str) -> Transcript:
    response = re.search(r"the response `(.*)`", given)
    told = re.search(r"the input `(.*)`", given)
    run = re.search(r"a run with `(.*)`", given)
    fields: dict[str, Any] = json.loads(run[1]) if run else {}
    if handoff := re.search(r"the hand-off `(\w+) -> (\w+)`", given):
        fields["features"] = {"handoffs": [{"source": handoff[1], "target": handoff[2]}]}
    if "timing" in fields:
        fields["timing"] = Timing(**fields["timing"])
    return Transcript(
        calls=tuple(calls_in(given)), response=response[1] if response else "", input=told and told[1], **fields
    )


def gradings_in(example: Example) -> tuple[Grading, ...]:
    """``the grades `pass` and `fail, for a reason`, a score in place of the word where there is a scale``."""
    outcomes = re.findall(r"`(pass|fail|\d+)(?:, (.*?))?`", example.given)
    criteria = load(example.expected, "expectations.md").get("judge", ())
    if not criteria:
        return ()
    grades = []
    for rubric, (outcome, why) in zip(map(parse_rubric, criteria), outcomes, strict=True):
        score = None if rubric.scale is None else int(outcome)
        passed = outcome == "pass" if score is None else rubric.is_score_enough(score)
        data = rubric.to_data()
        grade = Grade(criterion=str(rubric.text), passed=passed, reason=why, score=score)
        grades.append(grade if isinstance(data, str) else replace(grade, rubric=data))
    return (Grading(place="expected_output.judge", grades=tuple(grades), grader="gemini:MODEL"),)


@pytest.mark.parametrize("example", list(examples()))
def test_an_example_of_the_document_prints_what_it_says(example: Example) -> None:
    expectation, problems = compile_expectation(load(example.expected, "expectations.md"))
    assert problems == []
    record = put_gradings(transcript(example.given), gradings_in(example))
    judgement = expectation.judge(record)
    assert [reason.message for reason in judgement.reasons] == example.messages.splitlines()


def test_no_example_is_left_out() -> None:
    """Every block of messages belongs to an example that was found."""
    text = DOCUMENT.read_text(encoding="utf-8")
    assert text.count("```text") == len(EXAMPLE.findall(text)) == text.count("```yaml")


def test_every_code_of_the_order_is_documented() -> None:
    from evalkit.checks.reasons import RANK, UNMEASURED
    from evalkit.hooks.loading import get_built_in

    text = DOCUMENT.read_text(encoding="utf-8")
    world = {
        "unobserved",
        "mock_bypassed",
        "provider_error",
        "mock_error",
        "missing_approval",
        "missing_cassette",
        "stale_cassette",
        "missing_trace",
        "incomplete_trace",
    }
    of_features = {name for name, code in get_built_in().codes.items() if code.beside or code.after}
    codes = {*RANK, *UNMEASURED, *of_features} - world
    assert sorted(code for code in codes if f"`{code}`" not in text) == []
