"""A pull request of one YAML file runs no code that the project does not allow, and sends no key elsewhere."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

Project = Any
EVIL = "from pathlib import Path\nPath({path!r}).touch()\ndef run(*arguments, **named):\n    return 'done'\n"
OWN = "import os\nfrom subprocess import getoutput\n"


@pytest.fixture
def trap(project: Project, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that code leaves when it runs: of a module outside of the project, which is on the path."""
    folder = tmp_path_factory.mktemp("installed")
    trap = folder / "it_ran"
    (folder / "installed_evil.py").write_text(EVIL.format(path=str(trap)), "utf-8")
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
    monkeypatch.setenv("TRAP", str(trap))
    project.write("pytest.ini", "[pytest]\n")
    project.write("own_module.py", OWN)
    return trap


def attacks(trap: Path) -> dict[str, dict[str, Any]]:
    touch = f"touch {trap}"
    answer = {"message": json.dumps({"calls": [["check", {"id": "A1"}]]})}

    def mock(value: Any) -> dict[str, Any]:
        return {"input": {**answer, "mock_function_responses": {"check": value}}}

    return {
        "command": {"agent": {"command": ["sh", "-c", touch]}},
        "command_text": {"agent": {"command": f"env {touch}"}},
        "python_code": {"agent": {"command": ["python", "-c", f"open({str(trap)!r}, 'w')"]}},
        "polyglot": {"agent": {"command": ["bash", "scenarios/polyglot_001.yaml"]}, "description": f"\n{touch}\n"},
        "variable": {"agent": {"command": ["python", "own_module.py"], "env": {"PYTHONPATH": str(trap.parent)}}},
        "agent": {"agent": "installed_evil:run"},
        "system": {"agent": "os:system"},
        "reexported": {"agent": "own_module:os.system"},
        "reexported_function": {"agent": "own_module:getoutput"},
        "call": mock({"$call": "installed_evil:run"}),
        "call_system": mock({"$call": "os:system"}),
        "call_reexported": mock({"$call": "own_module:getoutput"}),
        "call_nested": mock({"$sequence": [{"$match": [{"when": {"id": "A1"}, "$call": "installed_evil:run"}]}]}),
        "exception": mock({"$error": {"exception": "installed_evil:run"}}),
        "patch": {"functions": {"check": {"patch": "installed_evil:run"}}},
        "base_url": {"settings": {"model": "openai:m?base_url=http://127.0.0.1:9/v1"}},
        "escaped_base_url": {"settings": {"model": "openai:m?stream=1&base%5Furl=http://127.0.0.1:9/v1"}},
        "url": {"agent": {"url": "http://169.254.169.254/latest"}},
    }  # fmt: skip


@pytest.mark.parametrize("kind", list(attacks(Path("x"))))
def test_a_file_runs_nothing_that_the_project_does_not_allow(project: Project, trap: Path, kind: str) -> None:
    path = project.case(f"{kind}_001", **attacks(trap)[kind])
    result = project.run_apart()
    assert not trap.exists()
    assert result.ret in (1, 6)
    assert project.statuses() == {f"{kind}_001": "error"}
    assert "is refused: " in result.stdout.str() or "may not name a base_url" in result.stdout.str()
    assert f"scenarios/{path.name}:1:" in result.stdout.str(), "with its line"
    for command in ("smoke", "mutate"):
        assert "Traceback" not in project.run_module("evalkit", command).stderr.str()
    assert not trap.exists()


def test_the_same_in_a_suite(project: Project, trap: Path) -> None:
    project.case("a_001", agent=None)
    project.write("scenarios/suite.yaml", json.dumps({"agent": {"command": ["sh", "-c", f"touch {trap}"]}}))
    result = project.run_apart()
    assert not trap.exists()
    result.stdout.fnmatch_lines(["*scenarios/suite.yaml:1:11: agent {*} is refused: 'sh -c*"])


def test_collecting_imports_nothing_of_a_case_s(project: Project, trap: Path) -> None:
    """Not even the project's own code; the run does, before any agent."""
    project.write("own_trap.py", EVIL.format(path=str(trap)))
    mocks = {"mock_function_responses": {"check": {"$call": "own_trap:run"}}}
    project.case("a_001", input={"message": json.dumps({"calls": [["check", {"id": "A1"}]]}), **mocks})
    project.case("a_002", functions={"check": {"patch": "own_trap:run"}}, tags=["slow"])
    result = project.run_apart("--collect-only", "-q")
    assert result.ret == 0
    assert result.outlines[:2] == ["scenarios/a_001.yaml::a_001", "scenarios/a_002.yaml::a_002"]
    assert not trap.exists()
    project.run_apart("-m", "slow").assert_outcomes(passed=1, deselected=1)
    assert trap.exists()


def test_what_the_configuration_allows_runs(project: Project, trap: Path) -> None:
    allow = 'allow_commands = ["sh -c"]\nallow_imports = ["installed_evil"]\n'
    project.write("pyproject.toml", f"[tool.evalkit]\n{allow}")
    command = ["sh", "-c", f"""cat > /dev/null; touch {trap}; printf '{{"text": "hi"}}'"""]
    expected = {"expected_output": {"response_contains": "hi"}}
    project.case("command_001", agent={"command": command}, input={"message": "x"}, **expected)
    project.run_apart().assert_outcomes(passed=1)
    assert trap.exists()
    trap.unlink()
    answer = {"message": json.dumps({"calls": [["check", {"id": "A1"}]]})}
    project.case("call_001", input={**answer, "mock_function_responses": {"check": {"$call": "installed_evil:run"}}})
    project.run_apart("scenarios/call_001.yaml").assert_outcomes(passed=1)
    assert trap.exists()


@pytest.mark.parametrize(
    ("name", "case"),
    [
        ("command", {"agent": {"command": ["python", "own_agent.py"]}}),
        ("attribute", {"agent": "own_agent:run"}),
        ("call", {"input": {"message": "{}", "mock_function_responses": {"check": {"$call": "own_agent:run"}}}}),
    ],
)
def test_untrusted_data_runs_nothing_at_all(project: Project, trap: Path, name: str, case: dict[str, Any]) -> None:
    project.write("pyproject.toml", '[tool.evalkit]\nallow_commands = ["*"]\nallow_imports = ["*"]\n')
    project.write("own_agent.py", EVIL.format(path=str(trap)))
    project.case(f"{name}_001", **case)
    project.case("registered_001")
    result = project.run_apart("--evalkit-untrusted")
    assert not trap.exists()
    assert project.statuses() == {f"{name}_001": "error", "registered_001": "passed"}
    assert "--evalkit-untrusted refuses what runs code that a file names" in result.stdout.str()
    for command in ("smoke", "mutate"):
        assert "Traceback" not in project.run_module("evalkit", command, "--untrusted").stderr.str()
    assert not trap.exists()


def test_an_agent_that_an_option_names_may_be_anything(project: Project, trap: Path) -> None:
    project.case("a_001", agent=None, input={"message": "x"}, expected_output={"response_contains": "done"})
    project.write("pytest.ini", "[pytest]\nevalkit_agent = installed_evil:run\n")
    project.run_apart().assert_outcomes(passed=1)
    assert trap.exists()
