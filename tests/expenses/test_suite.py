"""The reference suite `expenses`: images and files reach the agent, and cassettes are stale when they change."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from evalkit import ScriptedProvider, Settings, Verdict
from evalkit.agents.model_choice import _shared_providers
from evalkit.project import Project
from evalkit.runner.run_case import run_case

ROOT = Path(__file__).parents[2]
STEMS = [path.stem for path in sorted((ROOT / "scenarios" / "expenses").glob("*_[0-9]*.yaml"))]


def run(root: Path, stem: str, **settings: object) -> Verdict:
    (file,) = Project(root).load_cases([f"scenarios/expenses/{stem}.yaml"])
    assert file.case is not None, file.problems
    return run_case(file.case, settings=Settings(root=root, **settings))  # type: ignore[arg-type]


@pytest.mark.parametrize("stem", STEMS)
def test_the_case_passes(stem: str) -> None:
    verdict = run(ROOT, stem)
    assert verdict.status == "passed", [str(reason) for reason in verdict.reasons]
    assert not verdict.warnings


def test_a_recording_is_stale_when_the_image_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(ROOT / "scenarios" / "expenses", tmp_path / "scenarios" / "expenses")
    arguments = {"category": "travel", "amount": 38.5, "date": "2026-03-14"}
    turns: list[Any] = [{"calls": [{"file_expense": arguments}]}, "I have filed 38.50 EUR."]
    monkeypatch.setitem(_shared_providers, "gemini:x", ScriptedProvider(turns))
    recorded = run(tmp_path, "receipt_001", model="gemini:x", record="all")
    assert recorded.status == "passed", [str(reason) for reason in recorded.reasons]
    assert run(tmp_path, "receipt_001").status == "passed"

    (tmp_path / "scenarios" / "expenses" / "receipt.png").write_bytes(b"another picture")
    stale = run(tmp_path, "receipt_001")

    assert stale.status == "error"
    assert "message 1 of the conversation changed: user[1].sha256 was" in stale.reasons[0].message
