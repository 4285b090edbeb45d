"""The pages name every setting there is, and docs/running.md and docs/gate.md nothing that there is not."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

import evalkit
from evalkit.config import CONFIG_KEYS, read_value
from evalkit.plugin.options import OPTIONS, format_flag
from evalkit.records.run import Run
from evalkit.records.verdict import Verdict

DOCS = Path(__file__).parents[2] / "docs"
PAGES = "".join((DOCS / name).read_text("utf-8") for name in ("running.md", "gate.md"))
TABLES = [tomllib.loads(block) for block in re.findall(r"```toml\n(.*?)```", PAGES, re.DOTALL)]


@pytest.mark.parametrize("name", CONFIG_KEYS)
def test_every_key_is_described(name: str) -> None:
    everywhere = "".join(page.read_text("utf-8") for page in DOCS.glob("*.md"))
    assert f"`{name}`" in everywhere or re.search(rf"^{name} = |tool.evalkit.{name}]", everywhere, re.MULTILINE)


@pytest.mark.parametrize(
    "flag", [format_flag(option.name) for option in OPTIONS.values() if option.has_flag and option.has_setting]
)
def test_every_flag_is_described(flag: str) -> None:
    assert flag in PAGES


def test_no_flag_is_described_that_does_not_exist() -> None:
    known = {"--evalkit", *map(format_flag, OPTIONS)}
    assert set(re.findall(r"--evalkit[a-z-]*", PAGES)) <= known


@pytest.mark.parametrize("table", TABLES, ids=range(len(TABLES)))
def test_the_tables_of_settings_are_valid(table: dict[str, dict[str, dict[str, object]]]) -> None:
    for name, value in table["tool"]["evalkit"].items():
        read_value(name, value, f"tool.evalkit.{name}")


def test_the_example_in_python_gives_what_it_says() -> None:
    run = Run(verdicts=tuple(Verdict(case_id=str(n), status="passed") for n in range(49)))
    decision = evalkit.decide(run, evalkit.Policy(min_pass_rate="95"))
    assert (decision.status, decision.exit_status) == ("met", 0)
    assert decision.reasons[0].startswith("49 of 49 cases passed (100 %); ")


@pytest.mark.parametrize(("passed", "low"), [(100, "96.3 %")])
def test_the_interval_that_the_page_quotes_is_right(passed: int, low: str) -> None:
    run = Run(verdicts=tuple(Verdict(case_id=str(n), status="passed") for n in range(passed)))
    assert f"interval of the pass rate: {low} to 100 %" in evalkit.decide(run, evalkit.Policy()).facts["notes"][0]
    assert low in PAGES
