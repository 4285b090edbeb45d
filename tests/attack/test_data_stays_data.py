"""Data stays data: no case runs code, sends a key, or patches what judges, but for what SECURITY.md's table allows."""

from __future__ import annotations

import json
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from evalkit.hosts.reports.run_file import load_run
from evalkit.records.verdict import Verdict
from tests.attack.data_ways import FILES, LINKS, NOT_PASSED, NOT_REFUSED, PASSED, REFUSED, WAYS, Way

Project = Any
MODES = {"default": [], "untrusted": ["--evalkit-untrusted"]}
SECURITY = Path(__file__).parents[2] / "SECURITY.md"


def name_case(number: int) -> str:
    return f"way_{number + 1:03}"


def write_project(project: Project) -> None:
    for name, text in FILES.items():
        path = project.root / "project" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
        if "tool" in name or name.startswith("data/"):
            path.chmod(0o755)
    for link, target in LINKS.items():
        (project.root / "project" / link).symlink_to(target)
    (project.root / "project" / "pyproject.toml").write_text('[tool.pytest.ini_options]\npythonpath = ["."]\n', "utf-8")
    for path in (project.root / "outside.sqlite", project.root / "project" / "shop.sqlite"):
        with closing(sqlite3.connect(path)) as database:
            database.execute("create table orders (id integer)")
    (project.root / "project" / "scenarios").mkdir()
    for number, way in enumerate(WAYS):
        case = {"agent": "desk", "input": {"message": "hi"}, "expected_output": {"response_contains": "ok"}, **way.case}
        (project.root / "project/scenarios" / f"{name_case(number)}.yaml").write_text(json.dumps(case), "utf-8")


def tell(verdict: Verdict) -> str:
    """Tell what became of a way."""
    if verdict.status == "passed":
        return PASSED
    is_refused = {reason.code for reason in verdict.reasons} <= {"invalid_case", "unknown_agent"}
    messages = " ".join(reason.message for reason in verdict.reasons)
    return REFUSED if verdict.status == "error" and is_refused else f"{verdict.status}: {messages}"


@pytest.mark.parametrize("mode", MODES)
def test_every_way_ends_as_it_should(project: Project, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And no file of data has run: each would have left a file."""
    write_project(project)
    monkeypatch.chdir(project.root / "project")
    project.pytester.run(sys.executable, "-m", "pytest", "--evalkit", "-q", *MODES[mode])
    run = load_run(project.root / "project/.evalkit/last-run.json")
    found = {Path(verdict.case_id).stem: tell(verdict) for verdict in run.verdicts}
    wrong = []
    for number, way in enumerate(WAYS):
        wanted, outcome = getattr(way, mode), found.get(name_case(number), "no verdict")
        is_right = outcome == wanted or (outcome != {NOT_REFUSED: REFUSED, NOT_PASSED: PASSED}.get(wanted, outcome))
        if not is_right:
            wrong.append(f"{way.key} {way.name}: {outcome}, wanted {wanted}")
    assert not wrong, "\n".join(wrong)
    with closing(sqlite3.connect("shop.sqlite")) as database:
        assert database.execute("select count(*) from orders").fetchall() == [(0,)], "it was only read"
    left = {path.name for path in project.root.rglob("ran.*")}
    assert left <= ({"ran.tool.sh", "ran.good.sh", "ran.tool"} if mode == "default" else set())


def read_table() -> dict[str, tuple[str, str]]:
    """Return the rows of SECURITY.md's table: what a key may do in the default mode, and with --evalkit-untrusted."""
    text = SECURITY.read_text("utf-8").partition("<!-- data -->")[2].partition("<!-- end -->")[0]
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in text.strip().splitlines()]
    return {row[0]: (row[1], row[2]) for row in rows[2:]}


@pytest.mark.parametrize("key", list(dict.fromkeys(way.key for way in WAYS)))
def test_the_table_says_what_the_ways_show(key: str) -> None:
    """A cell that begins with "always" or "never" means all ways; any other one, some and not others."""
    for cell, mode in zip(read_table()[key], MODES, strict=True):
        outcomes = [getattr(way, mode) in (PASSED, NOT_REFUSED) for way in WAYS if way.key == key]
        word = cell.partition(" ")[0].strip(",.;:")
        assert {"always": all(outcomes), "never": not any(outcomes)}.get(word, any(outcomes)), (key, mode, cell)


def test_each_row_of_the_table_is_tried() -> None:
    assert set(read_table()) == {way.key for way in WAYS}
    assert len(WAYS) > 50
    assert len({(way.key, way.name) for way in WAYS}) == len(WAYS)
    assert all(isinstance(way, Way) for way in WAYS)
