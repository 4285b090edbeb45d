"""`--fix` mends what is safe to mend, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from evalkit.cli.lint import load_lint_options
from evalkit.errors import Location
from evalkit.hosts.lint.finding import Edit, Finding, apply_changes, plan_changes
from evalkit.hosts.lint.report import check_project
from evalkit.hosts.lint.rules import index_rules

BROKEN = sorted((Path(__file__).with_name("corpus") / "broken").glob("*.txt"))
TOOLS = """\
[
  {"name": "search_procedure", "description": "d", "input_schema": {"type": "object", "properties": {}}},
  {"name": "search_rag", "description": "d", "input_schema": {"type": "object", "properties": {}}}
]
"""
DESK = """\
---
name: desk
available_functions:
  - name: search_procedure
    description: Searches.
---
Call `tool_search_procedure` first.
"""


def mended(project: Any, files: dict[str, str]) -> int:
    """Lint, mend, and give the number of findings that were mended."""
    project.write(files)
    changes = plan_changes(check_project(load_lint_options(project.root)).findings, project.root)
    apply_changes(changes, project.root)
    return changes.fixed_count


def test_a_dispatch_table_learns_the_declared_names(project: Any) -> None:
    """Both names work while the code migrates; layout and quotes are kept."""
    table = """\
def tool_search_procedure(): ...


def tool_search_rag(): ...


TOOLS = {
    # native calling never worked
    'tool_search_procedure': tool_search_procedure,
    "tool_search_rag": (tool_search_rag, 3),  # ł
}
"""
    assert mended(project, {"tools.json": TOOLS, "agent.py": table}) == 2
    assert project.read("agent.py").endswith(
        """\
TOOLS = {
    # native calling never worked
    'search_procedure': tool_search_procedure,
    'tool_search_procedure': tool_search_procedure,
    "search_rag": (tool_search_rag, 3),
    "tool_search_rag": (tool_search_rag, 3),  # ł
}
"""
    )
    assert project.found() == []


def test_a_table_on_one_line_stays_on_one_line(project: Any) -> None:
    table = 'F = lambda: 1\nTOOLS = {"tool_search_procedure": F, "tool_search_rag": lambda: 2}\n'
    assert mended(project, {"tools.json": TOOLS, "agent.py": table}) == 2
    assert project.read("agent.py").split("\n")[1] == (
        'TOOLS = {"search_procedure": F, "tool_search_procedure": F, '
        '"search_rag": lambda: 2, "tool_search_rag": lambda: 2}'
    )


def test_an_instruction_gets_an_alias_for_the_name_in_its_text(project: Any) -> None:
    assert mended(project, {"desk.md": DESK}) == 1
    assert "  - name: search_procedure\n    alias: [tool_search_procedure]\n    desc" in project.read("desk.md")
    assert project.found() == []


@pytest.mark.parametrize(
    "entry",
    [
        "  - {name: search_procedure, description: Searches.}",
        "  - name: search_procedure\n    alias: [find]\n    description: d",
    ],
)
def test_an_alias_is_not_squeezed_in_where_it_has_no_line(project: Any, entry: str) -> None:
    text = DESK.replace("  - name: search_procedure\n    description: Searches.", entry)
    assert mended(project, {"desk.md": text}) == 0
    assert project.read("desk.md") == text


def test_a_mapping_of_functions_gets_the_alias_too(project: Any) -> None:
    text = DESK.replace("  - name: search_procedure\n    description", "  search_procedure:\n    description")
    assert mended(project, {"desk.md": text}) == 1
    assert "  search_procedure:\n    alias: [tool_search_procedure]\n    desc" in project.read("desk.md")
    assert project.found() == []


def test_names_in_cases_and_mocks_become_the_declared_ones(project: Any) -> None:
    """Comments and layout are kept, line ends too; names without a relative are left alone."""
    case = (
        "# a case\r\nagent: desk.md\r\ninput:\r\n  message: hello\r\n  mock_function_responses:\r\n"
        "    'tool_search_procedure': []  # none\r\nexpected_output:\r\n  expected_function_calls:\r\n"
        "    - function_name: searchProcedure # it\r\n    - send_email\r\n"
    )
    project.write({"desk.md": DESK.replace("tool_", "")})
    path = project.root / "scenarios" / "desk_001.yaml"
    path.parent.mkdir()
    path.write_bytes(b"\xef\xbb\xbf" + case.encode())
    assert mended(project, {}) == 2
    wanted = case.replace("'tool_search_procedure'", "'search_procedure'").replace(
        "searchProcedure", "search_procedure"
    )
    assert path.read_bytes() == b"\xef\xbb\xbf" + wanted.encode()
    assert [line.split(":")[0] for line in project.found()] == [
        "L501 the case expects 'send_email', which is not declared; declared are search_procedure"
    ]


def test_a_name_in_a_suite_is_mended_once_for_all_its_cases(project: Any) -> None:
    case = "input: {message: hello}\nexpected_output: {expected_function_calls: [search_procedure]}\n"
    suite = "agent: desk.md\ninput:\n  mock_function_responses:\n    tool_search_procedure: []\n"
    files = {"desk.md": DESK.replace("tool_", ""), "scenarios/suite.yaml": suite}
    files |= {f"scenarios/desk_00{number}.yaml": case for number in range(3)}
    mended(project, files)
    assert project.read("scenarios/suite.yaml") == suite.replace("tool_", "")
    assert project.found() == []


def test_files_and_labels_of_cases_get_their_names(project: Any) -> None:
    case = "input: {message: hello}\nexpected_output: {response_contains: hello}\n"
    files = {
        "scenarios/Desk Case 1.yaml": case,
        "scenarios/desk_002.yaml": f"scenario_id: desk_003\n{case}",
        "scenarios/suites.yaml": "agent: desk\n",
    }
    assert mended(project, files) == 3
    assert sorted(path.name for path in (project.root / "scenarios").iterdir()) == [
        "desk_002.yaml",
        "desk_case_1.yaml",
        "suite.yaml",
    ]
    assert project.read("scenarios/desk_002.yaml").startswith("scenario_id: desk_002\n")
    assert project.found() == []


def test_no_file_is_renamed_over_another(project: Any) -> None:
    case = "input: {message: hello}\nexpected_output: {response_contains: hello}\n"
    assert mended(project, {"scenarios/Desk_1.yaml": case, "scenarios/desk_1.yaml": case + "# other\n"}) == 0
    assert project.read("scenarios/desk_1.yaml").endswith("# other\n")


def test_the_diff_shows_what_would_change_and_changes_nothing(project: Any) -> None:
    project.write({"desk.md": DESK, "scenarios/A 1.yaml": "expected_output: {}\n"})
    changes = plan_changes(check_project(load_lint_options(project.root)).findings, project.root)
    assert [line for line in changes.format_diff() if not line.startswith((" ", "@@"))] == [
        "--- a/desk.md",
        "+++ b/desk.md",
        "+    alias: [tool_search_procedure]",
        "rename scenarios/A 1.yaml to scenarios/a_1.yaml",
    ]
    assert project.read("desk.md") == DESK


def test_a_change_that_would_break_the_code_is_not_made(project: Any) -> None:
    """The new text of a Python file must still be Python."""
    project.write({"agent.py": "TOOLS = {}\n"})
    broken = Finding(
        rule=index_rules()["dispatch-name"],
        location=Location("agent.py", 1),
        message="m",
        advice="a",
        fix=Edit("agent.py", 8, 8, "("),
    )
    changes = plan_changes([broken], project.root)
    assert (changes.fixed_count, changes.texts) == (0, {})


def test_edits_that_reach_into_each_other_are_not_both_made(project: Any) -> None:
    project.write({"a.md": "abcdef"})
    findings = [
        Finding(rule=index_rules()["case-name"], location=Location("a.md", 1), message="m", advice="a", fix=edit)
        for edit in (Edit("a.md", 1, 3, "X"), Edit("a.md", 2, 4, "Y"), Edit("a.md", 1, 3, "X"), Edit("a.md", 5, 5, "Z"))
    ]
    assert plan_changes(findings, project.root).texts == {"a.md": ("abcdef", "aXdeZf")}


@pytest.mark.parametrize("bundle", BROKEN, ids=lambda path: path.stem)
def test_mending_ends_and_makes_nothing_worse(bundle: Path, project: Any, unbundled: Any) -> None:
    """Over the whole corpus: what was mended is gone, nothing new is found, and a second time changes nothing."""
    files = unbundled(bundle)
    del files["expected"]
    project.write(files)
    before = check_project(load_lint_options(project.root)).findings
    apply_changes(plan_changes(before, project.root), project.root)
    after = check_project(load_lint_options(project.root)).findings
    assert {(it.name, it.message) for it in after} <= {(it.name, it.message) for it in before}
    changes = plan_changes(after, project.root)
    assert (changes.texts, changes.renames) == ({}, [])


def test_a_name_is_not_written_over_another(project: Any) -> None:
    """Both names are mocked: one key would be there twice."""
    files = {
        "tools.json": TOOLS,
        "scenarios/a_1.yaml": "input:\n  message: hi\n  mock_function_responses:\n"
        "    search_rag: {n: 1}\n    tool_search_rag: {n: 2}\nexpected_output: {response_contains: a}\n",
    }
    assert mended(project, files) == 0
    assert project.read("scenarios/a_1.yaml") == files["scenarios/a_1.yaml"]
