"""Values in a line of text: whole where they fit, else cut no more than they must be."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from evalkit.text import format as text_format
from evalkit.text.format import cut_between_words, format_arguments, format_dollars, format_json, format_usd

WORDS = ("drill", "pump", "::error::", "##[x]", "żółw", "\U0001f600", "\x1b", "\ud800", "a" * 45)


def any_value(rng: random.Random, depth: int = 0) -> Any:
    kind = rng.randrange(9 if depth < 6 else 4)
    if kind < 3:
        return " ".join(rng.choices(WORDS, k=rng.choice((0, 1, 2, 5, 20))))
    if kind == 3:
        return rng.choice((1, 2.5, None, True, float("nan"), 10**20, {1, 2}))
    if kind < 6:
        return {f"{rng.choice(WORDS)}{n}": any_value(rng, depth + 1) for n in range(rng.choice((0, 1, 3, 8)))}
    return [any_value(rng, depth + 1) for _ in range(rng.choice((0, 1, 2, 8)))]


@pytest.mark.parametrize("seed", range(10))
def test_cuts_that_would_change_nothing_are_left_out_without_a_difference(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    trials = [(any_value(rng), rng.choice((0, 1, 10, 30, 60, 80, 100, 150))) for _ in range(200)]
    shown = [(format_json(value, budget), format_arguments(value, budget)) for value, budget in trials]
    monkeypatch.setattr(text_format, "_select_limits", lambda *_: text_format._CUTS)
    assert shown == [(format_json(value, budget), format_arguments(value, budget)) for value, budget in trials]


def test_of_the_limits_that_cut_nothing_one_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def dumped(value: Any) -> str:
        tried.append(value)
        return json.dumps(value, ensure_ascii=False)

    monkeypatch.setattr(text_format, "_dump", dumped)
    format_json({"text": "x" * 42}, 46)
    assert [len(value["text"]) for value in tried] == [42, 40, 34]


@pytest.mark.parametrize(
    ("usd", "text"),
    [
        (0, "0 USD"),
        (4.94e-05, "0.0000494 USD"),
        (0.00058249, "0.0005825 USD"),
        (1.5, "1.5 USD"),
        (1234567, "1235000 USD"),
    ],
)
def test_money_has_no_exponent(usd: float, text: str) -> None:
    assert format_usd(usd) == text


@pytest.mark.parametrize(
    ("usd", "text"),
    [(0, "$0.0000"), (0.0000207, "$0.000021"), (0.00099, "$0.00099"), (0.001, "$0.0010"), (12.5, "$12.5000")],
)
def test_small_amounts_of_dollars_are_not_nothing(usd: float, text: str) -> None:
    assert format_dollars(usd) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("short", "short"),
        ("the key is sk-12345678901234567890", "the key is…"),
        ('{"error":"no","key":"sk-12345678901234567890"}', '{"error":"no","key":…'),
        ("<html><body>Bad gateway</body></html>", "<html><body>Bad gateway…"),
        ("sk-123456789012345678901234567890", "…"),
    ],
)
def test_a_text_is_cut_where_no_secret_is(text: str, shown: str) -> None:
    assert cut_between_words(text, 24) == shown
