"""The gate of a run whose graders must agree with people, from the first command to a changed grader."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

pytest.importorskip("openai")

from evalkit import Settings
from evalkit.cli import commands
from evalkit.features.graders.labels import measure_recorded_agreement
from tests.servers.model_service import ModelService, serve_model

AGENT = """
import evalkit

@evalkit.agent("desk")
def desk(task):
    task.call("send_letter", body="We are sorry.")
    return "sent"
"""
CASE = """
agent: desk
input: {message: m, mock_function_responses: {send_letter: {sent: true}}}
expected_output:
  expected_function_calls:
    - {function_name: send_letter, arguments: {body: {$judge: apologises}}}
"""
LABELS = """id,criterion,value:text,label
1,apologises,We are sorry.,pass
2,apologises,Sorry for the delay.,pass
3,apologises,Please pay.,fail
4,apologises,We regret that you are late.,fail
"""
CONFIGURATION = """
[tool.evalkit.judge_check]
labels = "labels.csv"
min_kappa = 0.9
"""


def grade(body: dict[str, Any]) -> dict[str, Any]:
    """Take regret for an apology, as the model `kind` does."""
    text = json.loads(body["messages"][-1]["content"])["evidence"]["values"]["1"]
    words = ("sorry", "regret") if body["model"] == "kind" else ("sorry",)
    met = any(word in json.dumps(text).casefold() for word in words)
    arguments = json.dumps({"grades": [{"criterion": 1, "quotes": [], "reason": "so it is", "pass": met}]})
    return {"tool_calls": [{"id": "c", "type": "function", "function": {"name": "grade", "arguments": arguments}}]}


@pytest.fixture
def service() -> Iterator[ModelService]:
    with serve_model(grade) as running:
        yield running


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    (tmp_path / "scenarios").mkdir()
    for name, text in (
        ("conftest.py", AGENT),
        ("scenarios/letter_001.yaml", CASE),
        ("labels.csv", LABELS),
        ("pyproject.toml", CONFIGURATION),
    ):
        (tmp_path / name).write_text(text, "utf-8")
    return tmp_path


def run_cases(folder: Path, *options: str) -> tuple[int, str]:
    """Run pytest as a process, whose exit status is what is tested."""
    words = [sys.executable, "-m", "pytest", "--evalkit", "-p", "no:cacheprovider", *options]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def run_command(*words: str) -> int:
    result = CliRunner().invoke(commands, words, standalone_mode=False)
    assert result.exception is None, result.output
    return int(result.return_value or 0)


def test_the_gate_follows_what_was_measured_of_the_grader(
    desk: Path, service: ModelService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.chdir(desk)
    strict, kind = (f"openai:{model}?base_url={service.url}" for model in ("strict", "kind"))
    command = f"evalkit judge-check labels.csv --grader={strict} --record"

    status, text = run_cases(desk, f"--evalkit-grader={strict}", "--evalkit-record=missing")
    assert status == 6, text
    assert f"how far {strict} agrees with people is not known: 4 of 4 values were not graded; `{command}`" in text

    assert run_command(*command.split()[1:]) == 0
    service.shutdown()  # from here on, everything is offline
    status, text = run_cases(desk, "-n", "2")
    assert status == 0, text
    assert run_command("gate", ".evalkit/last-run.json") == 0

    labels, grades = desk / "labels.csv", desk / "labels.judge.yaml"
    labels.write_text(LABELS.replace("delay.,pass", "delay.,fail"), "utf-8")  # people say otherwise
    status, text = run_cases(desk)
    assert status == 1
    assert f"kappa of {strict} is 0.50 over 4 labels; at least 0.9 is demanded" in text
    assert run_command("gate", ".evalkit/last-run.json") == 1

    labels.write_text(LABELS, "utf-8")
    grades.write_text(grades.read_text("utf-8").replace(strict, kind), "utf-8")
    status, text = run_cases(desk)
    assert status == 6
    assert f"the grades of labels.csv are of {kind}; `{command}`" in text


def test_a_changed_value_or_criterion_and_grades_of_nobody_are_not_measured(
    desk: Path, service: ModelService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.chdir(desk)
    spec = f"openai:strict?base_url={service.url}"
    settings = Settings(root=desk)
    assert run_command("judge-check", "labels.csv", f"--grader={spec}", "--record") == 0
    measured = measure_recorded_agreement("labels.csv", settings)
    assert (measured.grader, measured.items, measured.kappa, measured.problem) == (spec, 4, 1.0, "")
    assert measured.criteria == ("apologises",)

    graded = re.sub(r",(label|pass|fail)$", r",\1,\1", LABELS, flags=re.MULTILINE).replace("label,label", "label,grade")
    for text, problem in (
        (LABELS.replace("Please pay.", "Please pay now."), "1 of 4 values were not graded"),
        (LABELS.replace("apologises", "is polite"), "4 of 4 values were not graded"),
        (graded, "grades stand in labels.csv itself"),
        (LABELS.replace("pass", "perhaps"), "labels.csv:2: 'label' is pass or fail, got"),
    ):
        (desk / "labels.csv").write_text(text, "utf-8")
        assert problem in measure_recorded_agreement("labels.csv", settings).problem
    assert "there is no such file" in measure_recorded_agreement("none.csv", settings).problem
