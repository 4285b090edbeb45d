"""docs/adapters.md shows the files of docs/examples as they are; each example passes, and fails on a wrong call."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import evalkit
from evalkit.yamlfile.parse import load

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "adapters.md").read_text(encoding="utf-8")
BLOCK = r"```\w+\n(.*?)```"
EXAMPLES = sorted(file.parent.name for file in (ROOT / "docs" / "examples").glob("*/conftest.py"))
PACKAGES = {
    "claude_agent_sdk_desk": "claude_agent_sdk",
    "google_adk_desk": "google.adk",
    "langchain_desk": "langchain",
    "openai_agents_desk": "agents",
    "pydantic_ai_desk": "pydantic_ai",
}


def is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # not even the package that it is in
        return False


DESKS = [
    pytest.param(name, marks=pytest.mark.skipif(not is_installed(PACKAGES[name]), reason=f"no {PACKAGES[name]}"))
    for name in EXAMPLES
]


@pytest.mark.parametrize(("name", "content"), re.findall(rf"<!-- file: (\S+) -->\n{BLOCK}", PAGE, re.DOTALL))
def test_the_page_shows_a_file_as_it_is(name: str, content: str) -> None:
    assert content == (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("desk", EXAMPLES)
def test_the_users_code_takes_ten_lines_or_fewer_and_is_on_the_page(desk: str) -> None:
    file = f"docs/examples/{desk}/conftest.py"
    lines = [line for line in (ROOT / file).read_text(encoding="utf-8").splitlines() if line.strip()]
    assert len(lines) <= 10
    assert file in PAGE


@pytest.mark.parametrize("desk", DESKS)
def test_an_example_passes_under_pytest(desk: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pytest", "--evalkit", "-q", "-p", "no:cacheprovider", f"docs/examples/{desk}"]
    kept = f"--evalkit-results={tmp_path / 'run.json'}"
    run = subprocess.run([*command, kept], cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "1 passed" in run.stdout


@pytest.mark.parametrize("desk", DESKS)
def test_an_example_fails_on_a_wrong_call(desk: str) -> None:
    file = ROOT / "docs" / "examples" / desk / "desk_001.yaml"
    data: Any = load(file.read_bytes(), file.name)
    data["input"]["email"]["body"] = "And what about SN777?"
    case = evalkit.case_from_dict(data, file, root=ROOT)
    verdict = evalkit.run_case(case, settings=evalkit.Settings(root=ROOT))
    assert verdict.status == "failed"
    assert (verdict.reasons[0].code, verdict.reasons[0].message) == (
        "wrong_argument",
        'call 1, check_warranty: arguments.serial_number: expected "SN12345", got "SN777"',
    )
