"""What reaches the agent: the input without the test's own parts, and the user's words as text."""

from __future__ import annotations

from typing import Any

import pytest

from evalkit.agents.task_input import copy_visible_input, format_message
from evalkit.agents.task_settings import TaskSettings, merge_settings
from evalkit.records.case import CaseSettings
from evalkit.records.settings import Settings


def test_an_agent_sees_no_mocks_and_no_later_turns_and_shares_no_input() -> None:
    data: dict[str, Any] = {
        "context": {"tags": ["a"]},
        "mock_function_responses": {"f": 1},
        "mock_responses": {},
        "turns": [{"user": "hi"}],
    }

    seen = copy_visible_input(data)
    seen["context"]["tags"].append("b")

    assert seen == {"context": {"tags": ["a", "b"]}}
    assert data["context"] == {"tags": ["a"]}


@pytest.mark.parametrize(
    ("user", "text"),
    [
        ("hi", "hi"),
        (None, ""),
        ({"message": "hi"}, "hi"),
        (
            {"email": {"subject": "Broken", "from": "a@b.c", "body": "My fan\nis broken."}},
            "Subject: Broken\nFrom: a@b.c\n\nMy fan\nis broken.",
        ),
        ({"from": "a@b.c", "body": None}, "From: a@b.c\n\n"),
        ({"message": "hi", "context": {"vip": True}}, 'hi\n\n{\n  "context": {\n    "vip": true\n  }\n}'),
        ({"question": "why"}, '{\n  "question": "why"\n}'),
        ([1, "ą"], '[1, "ą"]'),
    ],
)
def test_what_the_user_says_is_text(user: Any, text: str) -> None:
    assert format_message(user) == text


@pytest.mark.parametrize(
    ("case", "settings", "expected"),
    [
        (CaseSettings(), Settings(), TaskSettings()),
        (
            CaseSettings(deadline_s=5, max_iterations=3, seed=7, model="gemini:a", strict_mocks=True),
            Settings(),
            TaskSettings(deadline_s=5, max_iterations=3, seed=7, model="gemini:a", strict_mocks=True),
        ),
        (
            CaseSettings(deadline_s=5, max_iterations=3, model="gemini:a"),
            Settings(deadline_s=9, max_iterations=1, strict_mocks=True, model="gemini:b"),
            TaskSettings(deadline_s=5, max_iterations=3, strict_mocks=True, model="gemini:b"),
        ),
        (
            CaseSettings(deadline_s=5),
            Settings(deadline_s=9, from_flags=frozenset({"deadline_s"})),
            TaskSettings(deadline_s=9),
        ),
        (CaseSettings(), Settings(temperature=0.0, seed=1), TaskSettings(temperature=0.0, seed=1)),
        (CaseSettings(left_to_model=frozenset({"seed"})), Settings(seed=1), TaskSettings()),
        (CaseSettings(temperature=0.7), Settings(temperature=0.0), TaskSettings(temperature=0.7)),
        (
            CaseSettings(temperature=0.7, seed=7, left_to_model=frozenset({"verbosity"})),
            Settings(temperature=0.0, seed=1, verbosity="low", from_flags=frozenset({"temperature", "verbosity"})),
            TaskSettings(temperature=0.0, seed=7, verbosity="low"),
        ),
    ],
)
def test_an_explicit_option_wins_over_the_case_and_the_case_over_defaults(
    case: CaseSettings, settings: Settings, expected: TaskSettings
) -> None:
    assert merge_settings(case, settings) == expected
