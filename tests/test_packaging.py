"""What is installed: .ci/oldest.txt is what pyproject.toml allows at least, and .ci/matrix knows every Python of it."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import re
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
import yaml

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS = ("openai", "otel")  # what `.ci/matrix oldest` installs


def load_matrix() -> ModuleType:
    loader = importlib.machinery.SourceFileLoader("matrix", str(ROOT / ".ci" / "matrix"))
    spec = importlib.util.spec_from_loader("matrix", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


matrix = load_matrix()


def test_the_oldest_versions_are_those_that_the_project_allows() -> None:
    lines = (ROOT / ".ci" / "oldest.txt").read_text("utf-8").splitlines()
    oldest = dict(line.split("==") for line in lines if not line.startswith("#"))
    demands = [*PROJECT["dependencies"], *(line for name in EXTRAS for line in PROJECT["optional-dependencies"][name])]
    lowest = dict(line.split(">=") for line in demands)
    assert oldest.keys() == lowest.keys()
    # A release may be the first that the registry has of a version.
    assert {name: version for name, version in oldest.items() if not f"{version}.".startswith(f"{lowest[name]}.")} == {}


def test_every_dependency_says_why_it_is_there() -> None:
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    block = text.partition("dependencies = [")[2].partition("]\n")[0]
    assert [line for line in block.splitlines() if line.strip() and "  # " not in line] == []


def test_the_matrix_has_the_pythons_that_the_project_names() -> None:
    named = [word for word in PROJECT["classifiers"] if re.fullmatch(r"Programming Language :: Python :: 3\.\d+", word)]
    assert {word.rpartition(" ")[2] for word in named} <= set(matrix.PYTHONS)
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text("utf-8"))
    assert tuple(workflow["jobs"]["pythons"]["strategy"]["matrix"]["python"]) == matrix.PYTHONS
    assert f">={matrix.PYTHONS[0]}" == PROJECT["requires-python"]


def test_the_workflow_runs_every_part_of_the_matrix() -> None:
    text = (ROOT / ".github" / "workflows" / "ci.yml").read_text("utf-8")
    assert set(re.findall(r"\.ci/matrix (\w+)", text)) == {"packages", "pythons", "oldest", "plugins"}


@pytest.mark.parametrize(
    "name",
    ["asyncio", "cov", "randomly", "rerunfailures", "timeout", "recording", "html", "anyio", "deepeval", "langsmith"],
)
def test_the_matrix_tries_the_plugins_that_people_use(name: str) -> None:
    assert matrix.PLUGINS[name][0]
