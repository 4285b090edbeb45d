"""Text that a terminal or the log of a CI runner would obey is shown instead."""

from __future__ import annotations

import json
import time

import pytest

from evalkit.text.format import escape_controls, escape_json_commands, escape_lines


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("::error::x", r"\x3a:error::x"),
        (" \u00a0::add-mask::t", " \u00a0\\x3a:add-mask::t"),
        ("::error file=a.py,title=a:b::x", r"\x3a:error file=a.py,title=a:b::x"),
        ("a ##[add-mask]t", r"a \x23#[add-mask]t"),
        ("###[error]", r"#\x23#[error]"),
        ("##vso[task.setvariable]x", r"\x23#vso[task.setvariable]x"),
        ("##teamcity[testStarted]", r"\x23#teamcity[testStarted]"),
    ],
)
def test_commands_of_ci_runners_are_broken(text: str, shown: str) -> None:
    """GitHub's runner trims a line, wants ``::name`` and another ``::``; the older ``##[name]`` works anywhere."""
    assert escape_controls(text) == shown


@pytest.mark.parametrize(
    "text", ["::1", "std::vector", "see ::error::x", "## [heading]", "a[::2]", "::", "#[x]", "# ##"]
)
def test_what_is_no_command_stays(text: str) -> None:
    assert escape_controls(text) == text


def test_a_command_may_begin_any_line() -> None:
    assert escape_lines("a\n  ::stop-commands::t\r\n::t::\rb") == "a\n  \\x3a:stop-commands::t\n\\x3a:t::\\x0db"


def test_json_stays_the_same_json() -> None:
    data = {"##[error]x": ["###[add-mask]t", "::error::x", "\\##vso[a]"]}
    text = escape_json_commands(json.dumps(data, indent=2))
    assert json.loads(text) == data
    assert "##" not in text.replace("###", "")


@pytest.mark.parametrize("text", ["\n" * 3_000_000, " " * 3_000_000 + "::", "::a " * 700_000, "#" * 3_000_000])
def test_a_long_text_takes_no_longer_than_its_length(text: str) -> None:
    started = time.perf_counter()
    escape_lines(text)
    assert time.perf_counter() - started < 5
