"""Changing one expectation in a case file turns exactly that case red."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import evalkit
from evalkit.runner.run_case import run_case
from evalkit.spec.load import load_case
from evalkit.yamlfile.write import dump
from tests.suites.files import changes
from tests.suites.suite import ROOT
from tests.suites.suites import SUITES

WARRANTY = SUITES["warranty"]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the suite whose files may be changed."""
    folder = tmp_path_factory.mktemp("project")
    shutil.copytree(WARRANTY.folder, folder / "scenarios" / "warranty")
    shutil.copytree(ROOT / "mocks", folder / "mocks")
    return folder


@pytest.mark.parametrize("kind", ["another", "not expected", "expected twice", "expected earlier"])
def test_one_changed_file_turns_that_case_red_and_no_other(kind: str, project: Path) -> None:
    stem = "valid_warranty_010"
    file = project / "scenarios" / "warranty" / f"{stem}.yaml"
    original = file.read_bytes()
    changed = next(change for change in changes(WARRANTY.load(stem)) if kind in change.what)
    try:
        file.write_text(dump(changed.data), encoding="utf-8")
        verdicts = [run(project, each) for each in WARRANTY.stems]
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
    assert f"1 failed, {len(WARRANTY.stems) - 1} passed" in done.stdout


def run(project: Path, stem: str) -> evalkit.Verdict:
    case = load_case(project / "scenarios" / "warranty" / f"{stem}.yaml", root=project)
    return run_case(case, settings=evalkit.Settings(root=project))
