"""The command line and the API see a project as pytest does: options, path, what conftest files register."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest

import evalkit
from evalkit.records.registry import CHECKS, OPERATORS
from tests.cli.conftest import Desk

CONFTEST = """\
import evalkit

@evalkit.agent("clerk")
def clerk(task):
    task.call("check", id="A1")
    return "done"

@evalkit.operator("{name}_even")
def is_even(expected, actual):
    return len(actual) % 2 == 0

@evalkit.check("{name}_steps")
def count_steps(expected, transcript):
    return len(transcript.calls) <= expected
"""
EXPECTED = """\
  expected_function_calls: [{{function_name: check, arguments: {{id: {{${name}_even: true}}}}}}]
  {name}_steps: 1
"""


@pytest.fixture(autouse=True)
def registries(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = [(table, dict(table._entries)) for table in (CHECKS, OPERATORS)]
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    modules = set(sys.modules)
    yield
    for table, entries in before:
        table._entries = entries
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def write(desk: Desk, name: str, text: str) -> None:
    (desk.root / name).parent.mkdir(parents=True, exist_ok=True)
    (desk.root / name).write_text(text, "utf-8")


def write_registering_suite(desk: Desk, name: str) -> Path:
    """A folder whose conftest registers an agent, a check and an operator, and a case that uses them."""
    write(desk, "conftest.py", "")
    write(desk, "scenarios/conftest.py", CONFTEST.replace("{name}", name))
    return desk.case("own_001", EXPECTED.format(name=name))


def test_the_command_line_knows_checks_and_operators_of_conftest_files(desk: Desk) -> None:
    write_registering_suite(desk, "cli")
    result = desk.run("smoke")
    assert (result.status, result.err) == (0, ""), result.out
    assert "unknown" not in result.out
    assert desk.run("mutate").status == 0


def test_load_case_knows_checks_and_operators_of_conftest_files(desk: Desk) -> None:
    case = evalkit.load_case(write_registering_suite(desk, "api"))
    assert evalkit.run_case(case).passed


def test_the_schema_has_the_projects_own_checks_and_operators(desk: Desk) -> None:
    path = write_registering_suite(desk, "editor")
    validator = jsonschema.Draft202012Validator(json.loads(desk.run("schema").out))
    case = evalkit.load_case(path)
    assert [error.message for error in validator.iter_errors(case.merged)] == []
    text = json.dumps(case.merged)
    assert not validator.is_valid(json.loads(text.replace("$editor_even", "$editor_eve")))
    assert not validator.is_valid(json.loads(text.replace("editor_steps", "editor_step")))


def test_a_function_that_a_suite_patches_is_found_below_the_root(desk: Desk) -> None:
    write(desk, "own_mail_b.py", "def send(to):\n    raise RuntimeError('really sent')\n")
    write(desk, "scenarios/suite.yaml", "functions: {send: {patch: 'own_mail_b:send'}}\n")
    write(desk, "conftest.py", "import evalkit\n\n@evalkit.agent('mailer')\ndef run(task):\n"
                               "    import own_mail_b\n    return own_mail_b.send(to='a')['id']\n")  # fmt: skip
    head = "agent: mailer\ninput: {message: x, mock_function_responses: {send: {id: M1}}}\n"
    path = desk.case("mail_001", "  expected_function_calls: [send]\n", head=head)
    assert desk.run("mutate").status == 0
    sys.path[:] = [entry for entry in sys.path if entry != str(desk.root)]
    assert evalkit.run_case(evalkit.load_case(path)).passed


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("pytest.ini", "[pytest]\npythonpath = src lib\n"),
        ("pyproject.toml", '[tool.pytest.ini_options]\npythonpath = ["src", "lib"]\n'),
        ("pyproject.toml", '[tool.pytest]\npythonpath = ["src", "lib"]\n'),
        ("tox.ini", "[pytest]\npythonpath = src lib\n"),
        ("setup.cfg", "[tool:pytest]\npythonpath = src lib\n"),
        ("pytest.toml", '[pytest]\npythonpath = ["src", "lib"]\n'),
    ],
)
def test_modules_on_pytests_pythonpath_are_found(desk: Desk, file: str, text: str) -> None:
    write(desk, file, text)
    write(desk, "lib/own_agents_b.py", "def run(task):\n    return 'yes'\n")
    head = "agent: own_agents_b:run\ninput: {message: x}\n"
    path = desk.case("there_001", "  response_contains: 'yes'\n", head=head)
    assert desk.run("mutate").status == 0
    assert evalkit.run_case(evalkit.load_case(path)).passed


def test_options_in_pytests_configuration_hold_for_the_command_line(desk: Desk) -> None:
    """They win over [tool.evalkit], as they do for pytest."""
    write(desk, "pyproject.toml", '[tool.evalkit]\npaths = ["nowhere"]\n')
    write(desk, "pytest.ini", "[pytest]\nevalkit_paths = 'my cases'\nevalkit_agent = clerk\n")
    write(desk, "my cases/own_001.yaml", "input: {message: x}\nexpected_output: {response_contains: ticket}\n")
    assert "own_001" in desk.run("mutate").out


def test_a_conftest_file_that_raises_is_named(desk: Desk) -> None:
    write(desk, "scenarios/conftest.py", "import no_such_module_b\n")
    desk.case("own_001", "  response_contains: x\n")
    result = desk.run("smoke")
    assert result.status == 4
    message = "importing scenarios/conftest.py raised ModuleNotFoundError: No module named 'no_such_module_b'"
    assert result.err == f"evalkit: {message}\n"


def test_an_unreadable_configuration_of_pytest_is_named(desk: Desk) -> None:
    write(desk, "pytest.ini", "pythonpath = src\n")
    result = desk.run("smoke")
    assert (result.status, result.err.split(":")[:3]) == (4, ["evalkit", " pytest.ini", " can't be read"])
