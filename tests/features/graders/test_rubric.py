"""Criteria with scales, panels and quotes: what may be said of one, and when it is met."""

from __future__ import annotations

from typing import Any

import pytest

from evalkit.features.graders.rubric import Rubric, RubricError, parse_rubric
from evalkit.records.settings import split_models


@pytest.mark.parametrize(
    ("data", "rubric"),
    [
        ("  It is kind. ", Rubric(text="It is kind.")),
        ({"rubric": "It is kind."}, Rubric(text="It is kind.")),
        ({"rubric": "tone", "scale": "1..5", "at_least": 4}, Rubric(text="tone", scale=(1, 5), at_least=4)),
        ({"rubric": "tone", "scale": " -2 .. 2", "at_least": 0}, Rubric(text="tone", scale=(-2, 2), at_least=0)),
        ({"rubric": "tone", "scale": [0, 10], "at_least": 10}, Rubric(text="tone", scale=(0, 10), at_least=10)),
        ({"rubric": "x", "panel": "all", "quote": True}, Rubric(text="x", panel="all", quote=True)),
    ],
)
def test_a_criterion_is_read_and_written_again(data: Any, rubric: Rubric) -> None:
    assert parse_rubric(data) == rubric
    assert parse_rubric(rubric.to_data()) == rubric


WRONG: list[tuple[Any, str, tuple[str, ...]]] = [
    (5, "a criterion in words, or a mapping with 'rubric', got 5", ()),
    ({"rubric": ""}, 'a criterion in words, got ""', ("rubric",)),
    ({"scale": "1..5"}, "'scale' stands without 'rubric', which says in words what is graded", ()),
    ({"rubric": "x", "scal": "1..5"}, "unknown key 'scal' of a criterion; did you mean 'scale'?", ("scal",)),
    (
        {"rubric": "x", "wheels": 4},
        "unknown key 'wheels' of a criterion; known are rubric, scale, at_least, panel, quote",
        ("wheels",),
    ),
    ({"rubric": "x", "scale": "1-5", "at_least": 4}, "'scale' is a scale such as 1..5, got \"1-5\"", ("scale",)),
    ({"rubric": "x", "scale": [1, True]}, "'scale' is a scale such as 1..5, got a list of 2", ("scale",)),
    (
        {"rubric": "x", "scale": "5..1", "at_least": 4},
        "'scale' is a scale such as 1..5, of 2 to 101 points, got \"5..1\"",
        ("scale",),
    ),
    ({"rubric": "x", "scale": "1..5"}, "'at_least' is a whole number from 2 to 5, got nothing", ("scale",)),
    (
        {"rubric": "x", "scale": "1..5", "at_least": 6},
        "'at_least' is a whole number from 2 to 5, got 6",
        ("at_least",),
    ),
    (
        {"rubric": "x", "scale": "1..5", "at_least": 1},
        "'at_least' is a whole number from 2 to 5, got 1, which every score reaches: the lowest is 1",
        ("at_least",),
    ),
    ({"rubric": "x", "at_least": 1}, "'at_least' needs 'scale', such as 1..5", ("at_least",)),
    ({"rubric": "x", "panel": "most"}, "'panel' is majority or all, got \"most\"", ("panel",)),
    ({"rubric": "x", "quote": "yes"}, "'quote' is true or false, got \"yes\"", ("quote",)),
]  # fmt: skip


@pytest.mark.parametrize(("data", "message", "path"), WRONG)
def test_a_criterion_that_makes_no_sense_says_why_and_where(data: Any, message: str, path: tuple[str, ...]) -> None:
    with pytest.raises(RubricError) as caught:
        parse_rubric(data)

    assert (str(caught.value), caught.value.path) == (message, path)


@pytest.mark.parametrize(
    ("panel", "votes", "met"),
    [
        ("majority", [True, True, False], True),
        ("majority", [True, False], False),
        ("majority", [True, False, False], False),
        ("all", [True, True, True], True),
        ("all", [True, True, False], False),
    ],
)
def test_a_majority_is_more_than_half(panel: str, votes: list[bool], met: bool) -> None:
    assert Rubric(text="x", panel=panel).count_votes(votes) is met


@pytest.mark.parametrize(
    ("text", "graders"),
    [
        (None, ()),
        ("gemini:a", ("gemini:a",)),
        ("gemini:a, openai:b,gemini:a", ("gemini:a", "openai:b", "gemini:a")),
        (
            "openai:b?base_url=http://localhost/v1&drop=seed,temperature,gemini:a",
            ("openai:b?base_url=http://localhost/v1&drop=seed,temperature", "gemini:a"),
        ),
    ],
)
def test_the_graders_of_a_panel_stand_with_commas_between_them(text: str | None, graders: tuple[str, ...]) -> None:
    assert split_models(text) == graders
