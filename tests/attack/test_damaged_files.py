"""Damaged files of every kind: clean problems with a place, no traceback, and no green where a demand was dropped."""

from __future__ import annotations

import json
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import evalkit
from evalkit.agents.instruction import load_instruction
from evalkit.cli.gate import describe_gate
from evalkit.config import read_options
from evalkit.errors import SpecError, UsageError
from evalkit.hosts.reports.run_file import load_run, write_run
from evalkit.models.cassettes.model import load_cassette
from evalkit.records.verdict import PASSED
from evalkit.runner.run_case import run_case
from evalkit.spec.load import load_case
from tests.attack.forms import choose
from tests.attack.mutations import damage
from tests.suites.suite import ROOT

Project = Any
SEED = 16
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def collect(*patterns: str) -> list[Path]:
    return sorted(path for pattern in patterns for path in ROOT.glob(pattern) if "__pycache__" not in path.parts)


def check_message(error: Exception, file: str) -> None:
    """A problem names its file. What is printed of it is escaped: `test_damaged_cases_in_one_run` looks at that."""
    assert "Traceback" not in str(error)
    assert file in str(error), str(error)[:500]


def check_loads(load: Callable[[], object], file: str) -> None:
    try:
        load()
    except (SpecError, UsageError) as error:
        check_message(error, file)


@pytest.fixture
def suite_copy(tmp_path: Path) -> Path:
    for folder in ("scenarios", "mocks"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def damage_each(files: list[Path], copy: Path, times: int, try_out: Callable[[Path], None]) -> None:
    rng = random.Random(SEED)
    for number in range(times):
        source = rng.choice(files)
        target = copy / source.relative_to(ROOT)
        original = source.read_bytes()
        damaged = damage(original, rng)
        target.write_bytes(damaged)
        try:
            try_out(target)
        except BaseException as error:
            text = damaged[:3000].decode("utf-8", "backslashreplace")
            error.add_note(f"{number}: {source.relative_to(ROOT)}\n{text}")
            raise
        target.write_bytes(original)


def test_damaged_case_files(suite_copy: Path) -> None:
    files = collect("scenarios/**/*_[0-9][0-9][0-9].yaml")

    def try_out(path: Path) -> None:
        check_loads(lambda: load_case(path, root=suite_copy, check_targets=False), "scenarios/")

    damage_each(files, suite_copy, choose(400, 40_000), try_out)


def test_damaged_suites(suite_copy: Path) -> None:
    def try_out(path: Path) -> None:
        case = next(path.parent.rglob("*_[0-9][0-9][0-9].yaml"))
        try:
            load_case(case, root=suite_copy, check_targets=False)
        except SpecError as error:
            check_message(error, "scenarios/")

    damage_each(collect("scenarios/**/suite.yaml"), suite_copy, choose(80, 10_000), try_out)


def test_damaged_cassettes(suite_copy: Path) -> None:
    files = collect("mocks/cassettes/**/*.yaml")
    damage_each(
        files, suite_copy, choose(150, 20_000), lambda path: check_loads(lambda: load_cassette(path), path.name)
    )


def test_damaged_instruction_files(suite_copy: Path) -> None:
    files = collect("scenarios/**/instructions/*.md", "scenarios/*/kitchen.md", "scenarios/*/navigator.md")
    damage_each(
        files, suite_copy, choose(100, 10_000), lambda path: check_loads(lambda: load_instruction(path), path.name)
    )


CONFIGURATION = b"""\
[tool.evalkit]
paths = ["scenarios"]
agent = "support"
min_pass_rate = 99.5
max_errors = 0
max_cost_usd = 2.5
no_regressions = true
baseline = "baseline.json"
concurrency = 50
deadline_s = 60
secret_keys = ["pesel"]
allow_commands = ["uv run"]

[tool.evalkit.category_floors]
refund = 100

[tool.evalkit.http]
ignore_hosts = ["desk.internal"]

[tool.pytest.ini_options]
testpaths = ["tests"]
evalkit_repeat = 3
"""


def test_damaged_configuration(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    for _ in range(choose(300, 20_000)):
        (tmp_path / "pyproject.toml").write_bytes(damage(CONFIGURATION, rng))
        check_loads(lambda: read_options(tmp_path), "")


# What a damaged file demands less must not be green: PyYAML, which knows nothing of evalkit, reads what is left.

DEMANDING = b"""\
description: A customer asks for a refund of a broken drill
tags: [refund, smoke]
must_pass: true
input:
  message: My drill SN12345 broke after a week.
  mock_function_responses:
    check_warranty: {status: valid}
    create_ticket: {ticket_id: TKT-1}
expected_output:
  expected_function_calls:
    - function_name: check_warranty
      arguments: {serial_number: SN12345}
    - function_name: create_ticket
      arguments_contain: {priority: {$one_of: [high, urgent]}}
      times: {at_least: 1, at_most: 2}
  response_contains: [refund, "{{ calls.create_ticket.result.ticket_id }}"]
  response_matches: "TKT-[0-9]+"
  email_sent: true
"""
DEMANDS = ("expected_function_calls", "response_contains", "response_matches", "email_sent")


def read_expectations(text: bytes) -> dict[str, Any]:
    data = yaml.safe_load(text)
    expected = data.get("expected_output") if isinstance(data, dict) else None
    return expected if isinstance(expected, dict) else {}


def test_a_damaged_case_that_demands_something_is_not_passed_by_an_agent_that_does_nothing(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    path = tmp_path / "refund_001.yaml"
    passed = 0
    for _ in range(choose(500, 50_000)):
        text = damage(DEMANDING, rng)
        path.write_bytes(text)
        try:
            case = load_case(path, root=tmp_path)
        except SpecError as error:
            check_message(error, path.name)
            continue
        verdict = run_case(case, agent=lambda task: "")
        assert not any("evalkit itself failed" in reason.message for reason in verdict.reasons), text
        if verdict.status == PASSED:
            passed += 1
            left = read_expectations(text)
            assert [key for key in DEMANDS if left.get(key)] == [], text.decode("utf-8", "backslashreplace")
        elif b"must_pass: true" in text:
            assert case.must_pass or yaml.safe_load(text).get("must_pass") is not True
    assert passed < 100


# Run files and journals.


@pytest.fixture
def missed_run(project: Project) -> Path:
    """A run file of a gate that is missed by a `must_pass` case alone."""
    project.case("a_001")
    project.case("b_001", {"calls": []}, must_pass=True)
    assert project.run("--evalkit-min-pass-rate=0").ret == 1
    path: Path = project.root / ".evalkit/last-run.json"
    return path


def is_still_missed(data: Any) -> bool:
    """Whether the JSON says, as somebody reads it who knows nothing of evalkit, what it said before the damage."""
    try:
        verdicts = {verdict["case_id"]: verdict for verdict in data["verdicts"]}
        failed = verdicts["scenarios/b_001.yaml"]
        return failed["status"] != "passed" and failed["must_pass"] is not False and failed["quarantined"] is None
    except (KeyError, TypeError):
        return True  # something is gone that every run file has


def test_a_damaged_run_file_meets_no_gate(missed_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(missed_run.parent.parent)
    rng = random.Random(SEED)
    original = missed_run.read_bytes()
    for number in range(choose(600, 30_000)):
        text = damage_json(original, rng) if number % 2 else damage(original, rng)
        missed_run.write_bytes(text)
        try:
            lines, status = describe_gate(missed_run, {"min_pass_rate": "0", "max_errors": 9}, None)
        except UsageError as error:
            check_message(error, missed_run.name)
            continue
        assert not CONTROLS.search("".join(lines)), lines
        if status == 0:
            assert not is_still_missed(json.loads(text)), text.decode("utf-8", "backslashreplace")[:6000]


def damage_json(text: bytes, rng: random.Random) -> bytes:
    """Return the document with one value dropped, renamed, doubled or replaced, and still JSON."""
    data = json.loads(text)
    node, steps = data, rng.randint(1, 4)
    while True:
        keys: list[Any] = list(node) if isinstance(node, dict) else list(range(len(node)))
        key = rng.choice(keys)
        steps -= 1
        if steps > 0 and isinstance(node[key], (dict, list)) and node[key]:
            node = node[key]
            continue
        break
    action = rng.choice(("drop", "replace", "rename", "double"))
    if action == "drop":
        del node[key]
    elif action == "rename" and isinstance(node, dict):
        node[f"{key}x"] = node.pop(key)
    elif action == "double" and isinstance(node, list):
        node.append(node[key])
    else:
        node[key] = rng.choice([None, True, False, 0, -1, 1e308, "", "x", "\ud800", [], {}, [[]], {"a": 1}, "9" * 5000])
    return json.dumps(data).encode()


def test_a_damaged_journal_is_read_or_refused(missed_run: Path) -> None:
    rng = random.Random(SEED)
    run = load_run(missed_run)
    lines = [json.dumps(verdict.to_json()).encode() for verdict in run.verdicts]
    head = {"evalkit_journal": 1, "selected": list(run.selected), "started": run.started, "collected": 2}
    original = b"\n".join([json.dumps(head).encode(), *lines, b""])
    journal = missed_run.with_name("last-run.journal.jsonl")
    for _ in range(choose(400, 50_000)):
        journal.write_bytes(damage(original, rng))
        try:
            loaded = load_run(journal)
        except UsageError as error:
            check_message(error, journal.name)
            continue
        assert evalkit.decide(loaded, evalkit.Policy(min_pass_rate="0", max_errors=9)).status != "met" or (
            b'"must_pass": true' not in journal.read_bytes()
        )
        write_run(missed_run.with_name("copy.json"), loaded)


def test_a_damaged_journal_beside_a_run_file_meets_no_gate(missed_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session was killed after the run that the file is of."""
    monkeypatch.chdir(missed_run.parent.parent)
    rng = random.Random(SEED)
    original = json.dumps({"evalkit_journal": 1, "selected": ["a"], "started": "later", "collected": 2}).encode()
    for _ in range(choose(200, 20_000)):
        missed_run.with_name("last-run.journal.jsonl").write_bytes(damage(original, rng))
        try:
            _, status = describe_gate(missed_run, {"min_pass_rate": "0", "max_errors": 9}, None)
        except UsageError as error:
            check_message(error, ".journal.jsonl")
            continue
        assert status != 0


def test_resuming_after_damage_ends_with_a_status(project: Project, missed_run: Path) -> None:
    """Through pytest itself: refused as usage, or run again; never an internal error, never green."""
    rng = random.Random(SEED)
    original = missed_run.read_bytes()
    for number in range(choose(12, 600)):
        missed_run.write_bytes(damage_json(original, rng) if number % 2 else damage(original, rng))
        result = project.run("--evalkit-resume", "--evalkit-min-pass-rate=0", "-q")
        assert result.ret in (1, 4, 6), result.ret
        assert "INTERNALERROR" not in result.stdout.str() + result.stderr.str()


def test_damaged_cases_in_one_run(project: Project) -> None:
    """Each broken file is an item of its own, its neighbours run, and nothing is raised inside pytest."""
    rng = random.Random(SEED)
    number = choose(120, 2_000)
    for index in range(number):
        (project.root / "scenarios").mkdir(exist_ok=True)
        text = damage(DEMANDING.replace(b"description", b"agent: obedient\ndescription"), rng)
        (project.root / f"scenarios/x{index:04}_001.yaml").write_bytes(text)
    project.case("z_001")
    result = project.run_afresh("-q", "--evalkit-trace=failed", "--junitxml=junit.xml", "--evalkit-html=report.html")
    output = result.stdout.str() + result.stderr.str()
    assert result.ret == 1
    assert len(project.run_file.verdicts) == number + 1
    assert project.statuses()["z_001"] == "passed"
    assert "INTERNALERROR" not in output
    assert "Traceback" not in output
    assert not CONTROLS.search(output)
    for verdict in project.run_file.verdicts:
        if verdict.status == "error":
            assert verdict.reasons[0].location, verdict.reasons[0]
