"""A case may name an agent that conftest.py registers, under pytest and without it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from evalkit.agents.registry import resolve_agent
from evalkit.errors import UnknownAgentError
from evalkit.records.case import Case
from evalkit.records.registry import AGENTS

REGISTER = "import evalkit\n\n@evalkit.agent({name!r})\ndef run(task):\n    return {name!r}\n"


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Path]:
    """A project with the agents `outer` and `inner`; afterwards nothing of it is left in the process."""
    names, modules, path = set(AGENTS), set(sys.modules), list(sys.path)
    suite = tmp_path / "scenarios" / "shop"
    suite.mkdir(parents=True)
    (tmp_path / "conftest.py").write_text(REGISTER.format(name="outer_of_conftests"), encoding="utf-8")
    (suite / "conftest.py").write_text(REGISTER.format(name="inner_of_conftests"), encoding="utf-8")
    yield tmp_path
    for name in set(AGENTS) - names:
        AGENTS.remove(name)
    for name in set(sys.modules) - modules:  # only the project's: a library dropped here would come back as a twin
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]
    sys.path[:] = path


def case_in(project: Path, folder: str = "scenarios/shop") -> Case:
    return Case(id=f"{folder}/a_1.yaml", path=project / folder / "a_1.yaml")


@pytest.mark.parametrize("name", ["outer_of_conftests", "inner_of_conftests"])
def test_a_registered_name_is_found_without_pytest(project: Path, name: str) -> None:
    agent = resolve_agent(name, case=case_in(project), root=project)
    assert agent.name == name
    assert agent.run(None) == name


def test_each_conftest_is_imported_once(project: Path) -> None:
    first = resolve_agent("inner_of_conftests", case=case_in(project), root=project)
    AGENTS.remove("inner_of_conftests")
    with pytest.raises(UnknownAgentError):
        resolve_agent("inner_of_conftests", case=case_in(project), root=project)
    assert first.run(None) == "inner_of_conftests"


def test_a_neighbours_conftest_stays_unread(project: Path) -> None:
    with pytest.raises(UnknownAgentError, match=r"'inner_of_conftests' is registered in scenarios/shop/conftest\.py"):
        resolve_agent("inner_of_conftests", case=case_in(project, "scenarios/other"), root=project)
    assert "inner_of_conftests" not in AGENTS


def test_a_broken_conftest_is_named(project: Path) -> None:
    (project / "scenarios" / "shop" / "conftest.py").write_text("import no_such_module_at_all", encoding="utf-8")
    with pytest.raises(UnknownAgentError) as caught:
        resolve_agent("inner_of_conftests", case=case_in(project), root=project)
    assert str(caught.value) == (
        "importing scenarios/shop/conftest.py raised ModuleNotFoundError: No module named 'no_such_module_at_all'"
    )
