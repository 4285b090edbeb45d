"""The composite action: its shell steps, run as the runner would run them, on run files of shards."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from evalkit.hosts.reports.run_file import write_run
from evalkit.records.run import Run
from evalkit.records.verdict import Reason, Verdict
from evalkit.yamlfile.parse import load

TOP = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(
    shutil.which("bash") is None or sys.platform == "win32", reason="the action's steps are bash"
)


def steps() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = load((TOP / "action.yml").read_text("utf-8"), "action.yml")["runs"]["steps"]
    return [step for step in found if "run" in step]


def shard(path: Path, *statuses: str) -> None:
    verdicts = tuple(
        Verdict(case_id=f"scenarios/{path.stem}_{i:03}.yaml", status=status, reasons=(Reason(code="x", message="why"),))
        for i, status in enumerate(statuses)
    )
    ids = tuple(verdict.case_id for verdict in verdicts)
    write_run(path, Run(verdicts=verdicts, selected=ids, collected=len(ids), ended="2026-11-22T10:00:04+00:00"))


def act(folder: Path, **inputs: str) -> list[tuple[int, str]]:
    """Each step's status and output, up to the first that fails."""
    given = {"RUNS": "run-*.json", "BASELINE": "", "TITLE": "a title", "NAME": "evalkit", "RATE": "", "REPORT_URL": ""}
    given |= {"OPTIONS": "", "FORK": "", "STATUS": "", "ACTION": str(TOP), "GITHUB_OUTPUT": str(folder / "output")}
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GITHUB_")}
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    environment = {**kept, **given, **inputs, "PATH": path, "GITHUB_STEP_SUMMARY": str(folder / "summary.md")}
    (folder / "output").unlink(missing_ok=True)
    done = []
    for step in steps():
        script = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
        if (folder / "output").is_file():  # outputs of the step that runs the cases
            environment["STATUS"] = (folder / "output").read_text().strip().removeprefix("status=")
        result = subprocess.run(script, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        done.append((result.returncode, result.stdout + result.stderr))
        if result.returncode:
            break
    return done


def test_shards_are_joined_reported_told_and_gated(tmp_path: Path) -> None:
    shard(tmp_path / "run-a.json", "passed", "passed")
    shard(tmp_path / "run-b.json", "passed", "failed")
    shard(tmp_path / "base.json", "passed")
    done = act(tmp_path, BASELINE="base.json")
    assert [status for status, _ in done] == [0, 0, 0, 1]
    assert "a title" in (tmp_path / "evalkit-report" / "report.html").read_text("utf-8")
    assert (tmp_path / "summary.md").read_text("utf-8").startswith("## ❌ a title: gate missed\n")
    assert done[3][1].startswith("gate MISSED: 3 of 4 cases passed (75 %)")


def test_one_run_and_a_lower_rate_are_enough(tmp_path: Path) -> None:
    shard(tmp_path / "run-a.json", "passed", "failed")
    assert [status for status, _ in act(tmp_path, RATE="50", BASELINE="is-not-there.json")] == [0, 0, 0, 0]


AGENT = """\
import evalkit

@evalkit.agent("echo")
def echo(task):
    return task.message
"""
CASE = "agent: echo\ninput: {message: right}\nexpected_output: {response_contains: right}\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A checkout with two cases, of which one fails."""
    (tmp_path / "scenarios").mkdir()
    (tmp_path / "conftest.py").write_text(AGENT)
    (tmp_path / "scenarios" / "good_001.yaml").write_text(CASE)
    (tmp_path / "scenarios" / "bad_001.yaml").write_text(CASE.replace("message: right", "message: wrong"))
    return tmp_path


def test_without_run_files_the_action_runs_the_cases(project: Path) -> None:
    done = act(project, RUNS="")
    assert [status for status, _ in done] == [0, 0, 0, 1]
    assert "1 failed, 1 passed" in done[0][1]
    assert (project / "evalkit-report" / "report.html").is_file()
    assert done[3][1].startswith("gate MISSED: 1 of 2 cases passed (50 %)")


def test_options_and_rate_reach_the_run(project: Path) -> None:
    done = act(project, RUNS="", RATE="40", OPTIONS="-q scenarios/good_001.yaml scenarios/bad_001.yaml")
    assert [status for status, _ in done] == [0, 0, 0, 0]
    done = act(project, RUNS="", OPTIONS="-q scenarios/good_001.yaml")
    assert [status for status, _ in done] == [0, 0, 0, 0]
    assert done[3][1].startswith("gate met: 1 of 1 cases passed (100 %)")


def test_a_wrong_option_ends_the_action_at_once(project: Path) -> None:
    ((status, text),) = act(project, RUNS="", OPTIONS="--evalkit-repeet 3")
    assert status == 4
    assert "did you mean '--evalkit-repeat'?" in text


def test_an_ordinary_test_that_fails_is_not_hidden_by_the_gate(project: Path) -> None:
    (project / "test_plain.py").write_text("def test_plain(): assert False\n")
    done = act(project, RUNS="", RATE="40", OPTIONS="-q test_plain.py scenarios")
    assert [status for status, _ in done] == [0, 0, 0, 1]
    assert done[3][1].startswith("gate met: 1 of 2 cases passed (50 %)")


def test_a_stranger_s_case_runs_no_code_that_it_names(project: Path) -> None:
    case = CASE.replace("agent: echo", "agent: {command: [touch, owned]}")
    (project / "scenarios" / "good_001.yaml").write_text(case)
    done = act(project, RUNS="", FORK="true")
    assert "--evalkit-untrusted" in done[0][1]
    assert not (project / "owned").exists()


def test_evalkit_comes_from_the_action_where_the_project_has_none(tmp_path: Path) -> None:
    """The step asks pip for the action's own folder: the evalkit of the same tag."""
    shard(tmp_path / "run-a.json", "passed")
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "python").write_text('#!/bin/sh\necho "$@" > asked\n')
    (tools / "python").chmod(0o755)
    script = ["/bin/bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", steps()[0]["run"]]
    environment = {"PATH": str(tools), "ACTION": "/action", "RUNS": "run-*.json"}
    subprocess.run(script, cwd=tmp_path, env=environment, check=True)
    assert (tmp_path / "asked").read_text() == "-m pip install --quiet /action\n"


def test_no_run_file_is_never_green(tmp_path: Path) -> None:
    assert act(tmp_path)[1:] == [(6, "::error::no run file matches 'run-*.json'\n")]


def test_a_run_that_is_told_twice_is_refused(tmp_path: Path) -> None:
    shard(tmp_path / "run-a.json", "passed")
    shutil.copy(tmp_path / "run-a.json", tmp_path / "run-b.json")
    _, (status, text) = act(tmp_path)
    assert status == 1
    assert "is in two of the runs" in text


def test_an_input_is_text_and_no_command(tmp_path: Path) -> None:
    shard(tmp_path / "run-a.json", "passed")
    hostile = "$(touch owned) `touch owned`; touch owned"
    assert [status for status, _ in act(tmp_path, TITLE=hostile)] == [0, 0, 0, 0]
    assert not (tmp_path / "owned").exists()


def test_no_step_pastes_an_expression_into_its_script() -> None:
    assert not [step["run"] for step in steps() if "${{" in step["run"]]
