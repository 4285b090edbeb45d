"""docs/lint.md says what there is: every setting, and examples that are true. Its tables of rules are made."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from evalkit.cli.lint import load_lint_options
from evalkit.hosts.lint.options import KEYS, read_options
from evalkit.hosts.lint.report import check_project

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "lint.md"


def test_the_settings_on_the_page_are_those_there_are() -> None:
    import tomllib

    block = re.search(r"```toml\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert block is not None
    settings = tomllib.loads(block[1])["tool"]["evalkit"]["lint"]
    assert settings.keys() == set(KEYS)
    read_options(settings, root=ROOT)


def test_the_finding_on_the_page_is_a_true_one(project: Any, unbundled: Any) -> None:
    """It is what lint says of the audited system in small."""
    files = unbundled(Path(__file__).with_name("corpus") / "broken" / "audited_system.txt")
    shown = re.search(r"```\n(src/.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert shown is not None
    assert shown[1] in project.text(files) + "\n"


def test_nothing_is_found_in_this_project() -> None:
    """Its suites are examples, and examples must not be wrong; what is broken on purpose is excluded by name."""
    report = check_project(load_lint_options(ROOT))
    assert [f"{finding.location}: {finding.message}" for finding in report.findings] == []
    assert report.cases > 100


def test_the_hook_for_pre_commit_runs_what_the_page_says() -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text("utf-8"))
    assert hook["entry"] == "evalkit lint"
    assert hook["pass_filenames"] is False
    assert f"- id: {hook['id']}" in PAGE.read_text("utf-8")
