"""docs/frameworks.md: the desk of each framework that is installed is recorded, replayed and asked live."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.adapters.test_examples import is_installed
from tests.frameworks.service import serve
from tests.walk import ROOT, cut_section, walk, write_file

PAGE = (ROOT / "docs" / "frameworks.md").read_text("utf-8")
PACKAGES = {
    "strands": "strands",
    "crewai": "crewai",
    "llamaindex": "llama_index.core",
    "haystack": "haystack",
    "agno": "agno",
    "autogen": "autogen_agentchat",
    "agent_framework": "agent_framework",
    "dspy": "dspy",
    "litellm": "litellm.main",
}
FRAMEWORKS = [
    pytest.param(name, marks=pytest.mark.skipif(not is_installed(package), reason=f"no {package}"))
    for name, package in PACKAGES.items()
]
WRONG = """
description: The model misreads the number
input: {message: I am in a hurry. Is SN12345 under warranty?}
expected_output:
  expected_function_calls: [{function_name: check_warranty, arguments: {serial_number: SN12345}}, send_reply]
"""


def test_the_page_has_a_desk_of_each_framework() -> None:
    assert re.findall(r"<!-- folder: (\w+) -->", PAGE) == list(PACKAGES)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_an_agent_is_judged_alike_live_and_recorded_and_replayed(framework: str, tmp_path: Path) -> None:
    walk(cut_section(PAGE, framework), tmp_path)
    project = tmp_path / framework
    write_file(project / "scenarios" / "wrong_001.yaml", WRONG)
    with serve() as url:
        live = run(project, url, "--evalkit-model=own")
        recorded = run(project, url, "--evalkit-record=missing")
    replayed = run(project, url)
    passed: dict[str, tuple[list[str], bool]] = {name: ([], True) for name in ("fails_001", "one_001", "two_001")}
    assert live == {**passed, "wrong_001": (["wrong_argument"], True)}
    assert (recorded, replayed) == (live, live)


def run(project: Path, url: str, *options: str) -> dict[str, tuple[list[str], bool]]:
    """Run the cases; return the codes of each, and whether its model was seen."""
    lead = {"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_BASE": f"{url}/v1", "AWS_ENDPOINT_URL_BEDROCK_RUNTIME": url}
    command = [sys.executable, "-m", "pytest", "--evalkit", "-q", "-p", "no:cacheprovider", *options]
    done = subprocess.run(command, cwd=project, env={**os.environ, **lead}, capture_output=True, text=True, check=False)
    file = project / ".evalkit" / "last-run.json"
    assert file.exists(), done.stdout + done.stderr
    verdicts = json.loads(file.read_text("utf-8"))["verdicts"]
    file.unlink()
    return {
        Path(verdict["case_id"]).stem: (
            [reason["code"] for reason in verdict["reasons"]],
            len(verdict["transcript"]["turns"]) > 1,
        )
        for verdict in verdicts
    }
