"""Changing one expectation in a case file turns exactly that case red, with a message that says so."""

from __future__ import annotations

import copy
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import evalkit
from evalkit import yamlfile
from evalkit.pipeline import run_case
from evalkit.spec import case_from_dict, load_case
from tests.warranty.suite import GROUPS, ROOT, STEMS, SUITE, Passed, load_stem

NOBODY = "words that nobody wrote"


class Changed(NamedTuple):
    """A case file with one expectation changed, the code that must be among the reasons, and words of its message."""

    what: str
    data: dict[str, Any]
    code: str
    says: str


def changes(data: dict[str, Any]) -> Iterator[Changed]:
    """Every way in which one expectation of `data` can be changed for the worse."""
    for path in list(call_lists(data)):
        yield from changed_lists(data, path)
    for path, value in list(walked(data["expected_output"], ("expected_output",))):
        key = str(path[-1]) if isinstance(path[-1], str) else str(path[-2])
        if path[-2] in ("arguments", "arguments_contain") and "forbidden_function_calls" not in path:
            yield Changed(f"another {path}", replaced(data, path, NOBODY), "wrong_argument", NOBODY)
        elif path[-2] == "result_contains":
            yield Changed(f"another {path}", replaced(data, path, NOBODY), "result_mismatch", NOBODY)
        elif key.endswith("_contains") and isinstance(value, str):
            yield Changed(f"another {path}", replaced(data, path, NOBODY), "text_missing", NOBODY)
        elif key == "ticket_fields" or path[-2] == "ticket_fields":
            fields = {"serial_number": NOBODY}
            yield Changed(f"another {path}", replaced(data, path[:2], fields), "wrong_argument", NOBODY)


def walked(value: Any, path: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Every value below `value`, with its path."""
    steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, item in steps:
        yield (*path, step), item
        if not (isinstance(item, dict) and any(str(key).startswith("$") for key in item)):
            yield from walked(item, (*path, step))


def call_lists(data: dict[str, Any]) -> Iterator[tuple[str | int, ...]]:
    """The paths of the lists of expected calls, groups included."""
    root = ("expected_output", "expected_function_calls")
    if "expected_function_calls" in data["expected_output"]:
        yield root
    yield from (path for path, _ in walked(data["expected_output"], ("expected_output",)) if path[-1] in GROUPS)


def changed_lists(data: dict[str, Any], path: tuple[str | int, ...]) -> Iterator[Changed]:
    calls = at(data, path)
    for index, call in enumerate(calls):
        fewer, more = calls[:index] + calls[index + 1 :], calls[: index + 1] + calls[index:]
        name = name_of(call)
        if len(calls) > 1 or len(path) == 2:
            yield Changed(f"{name} not expected", replaced(data, path, fewer), "unexpected_call", name)
        yield Changed(f"{name} expected twice", replaced(data, path, more), "missing_call", name)
        if path[-1] == "expected_function_calls" and index:
            turned = [*calls[: index - 1], call, calls[index - 1], *calls[index + 1 :]]
            yield Changed(f"{name} expected earlier", replaced(data, path, turned), "wrong_order", name)


def name_of(call: Any) -> str:
    group = next((key for key in GROUPS if isinstance(call, dict) and key in call), None)
    if group:
        return name_of(call[group][0])
    return str(call if isinstance(call, str) else call["function_name"])


def at(data: Any, path: tuple[str | int, ...]) -> Any:
    for step in path:
        data = data[step]
    return data


def replaced(data: dict[str, Any], path: tuple[str | int, ...], value: Any) -> dict[str, Any]:
    changed = copy.deepcopy(data)
    at(changed, path[:-1])[path[-1]] = value
    return changed


def found(data: dict[str, Any], stem: str, verdict: evalkit.Verdict) -> list[tuple[str, str]]:
    """The codes and messages by which the changed case is red; a contradiction is refused at collection already."""
    try:
        case = case_from_dict(data, SUITE / f"{stem}.yaml", root=ROOT)
    except evalkit.SpecError as error:
        return [("contradiction", problem.message) for problem in error.problems]
    judgement = case.expectation.judge(verdict.transcript, input=case.input)
    return [(reason.code, reason.message) for reason in judgement.reasons]


@pytest.mark.parametrize("stem", STEMS)
def test_each_changed_expectation_is_missed_and_named(stem: str, passed: Passed) -> None:
    _, verdict = passed(stem)
    wrong: list[str] = []
    everything = list(changes(load_stem(stem)))
    for what, data, code, says in everything:
        reasons = found(data, stem, verdict)
        if not any(
            (is_code == code and says in message) or (is_code == "contradiction" and "can't be" in message)
            for is_code, message in reasons
        ):
            wrong.append(f"{what}: expected {code} with {says!r}, got {reasons}")
    assert wrong == []
    assert len(everything) >= 1


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the suite whose files may be changed."""
    folder = tmp_path_factory.mktemp("project")
    shutil.copytree(SUITE, folder / "scenarios" / "warranty")
    shutil.copytree(ROOT / "mocks", folder / "mocks")
    return folder


@pytest.mark.parametrize("kind", ["another", "not expected", "expected twice", "expected earlier"])
def test_one_changed_file_turns_that_case_red_and_no_other(kind: str, project: Path) -> None:
    stem = "valid_warranty_010"
    file = project / "scenarios" / "warranty" / f"{stem}.yaml"
    original = file.read_bytes()
    changed = next(change for change in changes(load_stem(stem)) if kind in change.what)
    try:
        file.write_text(yamlfile.dump(changed.data), encoding="utf-8")
        verdicts = [run(project, each) for each in STEMS]
    finally:
        file.write_bytes(original)
    assert [verdict.case_id for verdict in verdicts if not verdict.passed] == [f"scenarios/warranty/{stem}.yaml"]


def test_pytest_shows_the_changed_case_alone(project: Path) -> None:
    file = project / "scenarios" / "warranty" / "missing_info_001.yaml"
    original = file.read_text(encoding="utf-8")
    file.write_text(original.replace("body_contains: [serial number,", "body_contains: [order number,"), "utf-8")
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "--evalkit", "-q", "-p", "no:cacheprovider"],
            cwd=project,
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        file.write_text(original, encoding="utf-8")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "✗ missing_info_001" in done.stdout
    assert 'body does not contain "order number"' in done.stdout
    assert done.stdout.count("✗ ") == 2  # the case and its call
    assert f"1 failed, {len(STEMS) - 1} passed" in done.stdout


def run(project: Path, stem: str) -> evalkit.Verdict:
    case = load_case(project / "scenarios" / "warranty" / f"{stem}.yaml", root=project)
    return run_case(case, settings=evalkit.Settings(root=project))
