"""Findings of lint as warnings of the collection: only where the project asks for them, and told once."""

from __future__ import annotations

from typing import Any

import pytest

Project = Any
ON = "[tool.evalkit.lint]\nin_collection = true\n"
TOOLS = 'TOOLS = [{"name": "check", "input_schema": {"type": "object", "properties": {"id": {"type": "string"}}}}]\n'
WARNING = (
    "*LintWarning: L104 description-missing: 'check' is declared without a description; say what the function does "
    "and when to call it: models choose by the description"
)


@pytest.fixture
def linted(project: Project) -> Project:
    """A project with a finding, and a case that passes."""
    project.write("pyproject.toml", ON)
    project.write("shop/tools.py", TOOLS)
    project.case("a_001")
    return project


def summary(result: Any) -> list[str]:
    return [line.strip() for line in result.outlines if "LintWarning" in line or line.startswith("shop/")]


def test_a_finding_is_a_warning_with_its_place(linted: Project) -> None:
    """It decides nothing: the case passes, and the gate is met."""
    result = linted.run_apart("-q")
    result.stdout.fnmatch_lines(["*shop/tools.py:1", WARNING])
    assert result.ret == 0


def test_under_xdist_it_is_told_once(linted: Project) -> None:
    result = linted.run_apart("-q", "-n", "2")
    assert sum("LintWarning" in line for line in result.outlines) == 1
    assert result.ret == 0


def test_notes_and_silenced_findings_are_not_told(linted: Project) -> None:
    linted.write("pyproject.toml", ON + '[tool.evalkit.lint.severity]\ndescription-missing = "note"\n')
    assert summary(linted.run("-q")) == []


@pytest.mark.parametrize("setting", ["", "[tool.evalkit.lint]\nin_collection = false\n", "[tool.evalkit.lint]\n"])
def test_without_the_setting_nothing_of_lint_is_loaded(linted: Project, setting: str) -> None:
    linted.write("pyproject.toml", setting)
    linted.write(
        "scenarios/conftest.py",
        "def pytest_unconfigure():\n    import sys\n    assert 'evalkit.hosts.lint' not in sys.modules\n",
    )
    result = linted.run_afresh("-q")
    assert summary(result) == []
    assert "AssertionError" not in result.stderr.str()


def test_warnings_can_be_filtered_by_code(linted: Project) -> None:
    assert summary(linted.run_apart("-q", "-W", "ignore:L104")) == []


def test_as_an_error_a_finding_stops_the_session_with_its_place(linted: Project) -> None:
    """Exit status 4, and no crash of pytest."""
    result = linted.run_apart("-q", "-W", "error:L104")
    result.stderr.fnmatch_lines(["ERROR: evalkit: shop/tools.py:1:*: L104 description-missing: *"])
    assert result.ret == 4
    assert "INTERNALERROR" not in result.stdout.str() + result.stderr.str()


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ('select = ["L99"]', "tool.evalkit.lint.select: there is no rule 'L99'; docs/lint.md lists them"),
        ('paths = ["nowhere"]', "nowhere: no such file or folder"),
    ],
)
def test_settings_that_make_no_sense_exit_with_4(linted: Project, setting: str, message: str) -> None:
    linted.write("pyproject.toml", f"{ON}{setting}\n")
    result = linted.run_apart("-q")
    result.stderr.fnmatch_lines([f"ERROR: evalkit: {message}"])
    assert result.ret == 4
