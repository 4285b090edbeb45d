"""The reference suite `booking`: two prompts side by side, what the shorter one spares and what it breaks."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from evalkit.gate.decision import decide
from evalkit.hosts.reports.run_file import load_run
from evalkit.records.run import Policy, Run

ROOT = Path(__file__).parents[2]
README = (ROOT / "scenarios/booking/README.md").read_text("utf-8")
PAGE = (ROOT / "docs/compare.md").read_text("utf-8")
LABELS = ("prompt=desk.md", "prompt=desk_short.md")


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, str]:
    """The run of the README's command, and what it prints."""
    command = re.findall(r"^pytest (.*)$", README, re.MULTILINE)[0].split()
    results = tmp_path_factory.mktemp("run") / "run.json"
    options = ["-p", "no:cacheprovider", "--evalkit-results", str(results)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *command, *options], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stdout
    return load_run(results), done.stdout


def test_the_shorter_prompt_is_worse_where_the_readme_says(compared: tuple[Run, str]) -> None:
    failed = {verdict.case_id for verdict in compared[0].verdicts if not verdict.passed}
    assert failed == {f"scenarios/booking/rooms_{number:03}.yaml[{LABELS[1]}]" for number in (1, 2)}


def test_it_spares_tokens_and_time(compared: tuple[Run, str]) -> None:
    long, short = decide(compared[0], Policy()).facts["side_by_side"]["variants"]
    assert (long["label"], short["label"]) == LABELS
    assert short["tokens_per_case"] < 0.6 * long["tokens_per_case"]
    assert short["ms_per_case"] < long["ms_per_case"]


def test_the_table_on_the_page_is_what_the_run_prints(compared: tuple[Run, str]) -> None:
    table = re.findall(r"^(side by side .*?)^gate ", PAGE, re.MULTILINE | re.DOTALL)[0]
    assert table in compared[1]
    (lines,) = re.findall(r"^  (prompt=desk_short.md against .*?)```", PAGE, re.MULTILINE | re.DOTALL)
    sentence = " ".join(lines.split())
    assert sentence in compared[1]


def test_the_cases_are_green_with_the_prompt_that_they_name(tmp_path: Path) -> None:
    options = ["--evalkit", "scenarios/booking", "-p", "no:cacheprovider", f"--evalkit-results={tmp_path}/run.json"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
