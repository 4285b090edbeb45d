"""Names that a case brings along: line breaks in folders, keys of a megabyte, secrets in commands."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path

import pytest

import evalkit

CASE = "description: x\ninput: {message: hi}\nexpected_output: {response_contains: [x]}\n"


def test_a_folder_whose_name_has_a_line_break_writes_no_line_of_its_own(pytester: pytest.Pytester) -> None:
    """`::error::` at the beginning of a line is a command to a GitHub runner."""
    pytester.makeini("[pytest]\nevalkit_paths = scenarios")
    folder = pytester.path / "scenarios" / "bad\n::error::x"
    folder.mkdir(parents=True)
    (folder / "c_001.yaml").write_text(CASE)

    result = pytester.runpytest_subprocess("--evalkit", "--junitxml=junit.xml")

    assert result.ret != 0
    text = result.stdout.str() + result.stderr.str() + (pytester.path / "junit.xml").read_text()
    assert "a name with line breaks or control characters is not read; rename it" in text
    assert "\n::error::x" not in text
    assert "\\x0a::error::x" in text


KEY = "k" * 1_000_000


@pytest.mark.parametrize(
    "text",
    [
        f"{CASE}? {KEY}\n: 1\n",
        f"{CASE}? {KEY}\n: 1\n? {KEY}\n: 2\n",
        f"{CASE}settings:\n  ? {KEY}\n  : 1\n",
        f"{CASE}functions:\n  ? {KEY}\n  : {{parameters: 5}}\n",
        f"{CASE}tags: [*{KEY}]\n",
        f"{CASE}tags: !{KEY} x\n",
        CASE + "".join(f"unknown_{index}: 1\n" for index in range(20_000)),
    ],
)
def test_a_message_is_short_whatever_a_file_is_full_of(tmp_path: Path, text: str) -> None:
    file = tmp_path / "a_001.yaml"
    file.write_text(text)

    with pytest.raises(evalkit.SpecError) as caught:
        evalkit.load_case(file)

    assert len(str(caught.value)) < 50_000
    assert "characters)" in str(caught.value) or "... and 19,800 problems more" in str(caught.value)


def test_a_name_that_a_model_made_up_is_cut_in_messages() -> None:
    case = evalkit.case_from_dict(
        {"description": "x", "input": {"message": "hi"}, "expected_output": {"expected_function_calls": []}}
    )

    def agent(task: evalkit.Task) -> str:
        with suppress(evalkit.EvalkitError):
            task.call(KEY)
        return "x"

    verdict = evalkit.run_case(case, agent=agent)

    assert all(len(reason.message) < 10_000 for reason in verdict.reasons)


def test_a_secret_in_the_arguments_of_a_command_is_warned_of(tmp_path: Path) -> None:
    script = tmp_path / "agent.py"
    script.write_text("print('x')")
    data = {
        "description": "x",
        "input": {"message": "hi"},
        "agent": {"command": [sys.executable, str(script), "--key=sk-abcdefghijklmnopqrstuvwx"]},
        "expected_output": {"response_contains": ["x"]},
    }

    verdict = evalkit.run_case(evalkit.case_from_dict(data))

    warnings = [warning for warning in verdict.transcript.warnings if "looks like a secret" in warning]
    assert len(warnings) == 1
    assert "hand it over in 'env'" in warnings[0]
    assert "sk-abc" not in warnings[0]
