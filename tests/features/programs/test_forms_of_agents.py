"""Forms of agents of another package: their errors are those of the package, and two can't have one form."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from evalkit.entries import Entry
from evalkit.errors import UsageError
from evalkit.hooks.loading import FeatureList

MODULE = """\
from evalkit.entries import Entry
from evalkit.hooks import AgentForm, Feature
from evalkit.spec.case_reader import CaseKey, CaseReader

ENTRY = Entry(name="mill", target="mill:Mill", agent_forms=("mill",))


def find_started(form):
    if form["mill"] == "stuck":
        raise LookupError("no wind")
    return {"url": form["mill"]} if form["mill"].startswith("http") else {}


class Mill(Feature):
    name = "mill"

    def list_agent_forms(self):
        key = CaseKey(CaseReader.read_text, {"type": "string"}, "What it grinds.")
        return {"mill": AgentForm(keys={"mill": key}, find_started=find_started)}

    def build_agent(self, request):
        raise RuntimeError("no corn")
"""
CASE = "agent: {{mill: {}}}\ninput: {{message: hi}}\nexpected_output: {{response_contains: x}}\n"


def run(project: Path, said: str) -> str:
    package = project / "packages"
    (package / "mill-1.dist-info").mkdir(parents=True)
    (package / "mill.py").write_text(MODULE, "utf-8")
    (package / "mill-1.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: mill\nVersion: 1\n", "utf-8")
    (package / "mill-1.dist-info/entry_points.txt").write_text("[evalkit.features]\nmill = mill:ENTRY\n", "utf-8")
    (project / "pyproject.toml").touch()
    (project / "scenarios").mkdir()
    (project / "scenarios/mill_001.yaml").write_text(CASE.format(said), "utf-8")
    environment = {**os.environ, "PYTHONPATH": f"{Path(__file__).parents[3]}{os.pathsep}{package}", "COLUMNS": "200"}
    command = [sys.executable, "-m", "pytest", "--evalkit", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 6  # not measured
    return done.stdout


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ("corn", "feature 'mill' of mill does not work: RuntimeError: no corn"),
        ("stuck", "feature 'mill' of mill does not work: LookupError: no wind"),
        ("http://mill.example.com/grind", "is refused: mill.example.com is another machine"),
    ],
    ids=["no agent is built", "what it starts can't be told", "the project does not allow what it asks"],
)
def test_what_goes_wrong_is_an_error_of_the_case(tmp_path: Path, said: str, problem: str) -> None:
    printed = run(tmp_path, said)
    assert problem in printed
    assert "please report it" not in printed


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (Entry(name="other", agent_forms=("mill",)), "form 'mill' of agents"),
        (Entry(name="other", settings=("mills",)), "key 'mills' of [tool.evalkit]"),
        (Entry(name="other", providers={"mill": "m:M"}), "kind 'mill' of models"),
        (Entry(name="other", endpoint="mill"), "endpoint 'mill'"),
    ],
)
def test_two_packages_can_not_have_one_name(entry: Entry, words: str) -> None:
    first = Entry(name="mill", agent_forms=("mill",), settings=("mills",), providers={"mill": "m:M"}, endpoint="mill")
    with pytest.raises(UsageError) as caught:
        FeatureList.build([(first, "a-mill"), (entry, "another")])
    assert f"both have the {words}; uninstall one of them" in str(caught.value)
