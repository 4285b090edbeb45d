"""What a conftest.py registers holds for its folder and below, whatever is selected and whoever opens the project."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from evalkit.features.mcp.servers import MCP_SERVERS
from tests.plugin.conftest import Project

CONFTEST = """\
import evalkit
from mcp.server import MCPServer

@evalkit.agent("support")
def support(task):
    return "{word}"

@evalkit.check("own_check")
def own_check(expected, transcript):
    return transcript.response == "{word}"

@evalkit.operator("own")
def own(expected, actual):
    return actual == "{word}"

@evalkit.mcp_server("shop")
def shop():
    server = MCPServer("shop")
    server.tool(name="word")(lambda: "{word}")
    return server
"""
CASES = {
    "agent_001": "agent: support\ninput: {message: hi}\nexpected_output: {response_contains: WORD}\n",
    "check_001": "agent: support\ninput: {message: hi}\nexpected_output: {own_check: true}\n",
    "operator_001": "agent: {mcp: shop}\ninput: {calls: [word]}\n"
    "expected_output: {expected_function_calls: [{function_name: word, result_contains: {$own: true}}]}\n",
}


@pytest.fixture
def two(project: Project) -> Iterator[Project]:
    """Two folders whose conftest files register the same names, by functions of the same names."""
    project.write("conftest.py", "")
    for word in ("left", "right"):
        project.write(f"scenarios/{word}/conftest.py", CONFTEST.replace("{word}", word))
        for name, text in CASES.items():
            project.write(f"scenarios/{word}/{name}.yaml", text.replace("WORD", word))
    yield project
    MCP_SERVERS.remove("shop")


def statuses(project: Project) -> dict[str, str]:
    return {verdict.case_id.removeprefix("scenarios/"): verdict.status for verdict in project.run_file.verdicts}


@pytest.mark.parametrize(
    ("arguments", "count"),
    [
        ((), 6),
        (("scenarios/right",), 3),
        (("scenarios/right/agent_001.yaml", "scenarios/left/check_001.yaml"), 2),
        (("-k", "operator"), 2),
        (("-n", "2"), 6),
    ],
)
def test_each_folder_has_its_own(two: Project, arguments: tuple[str, ...], count: int) -> None:
    assert two.run_apart(*arguments).ret == 0
    assert list(statuses(two).values()) == ["passed"] * count


API = """\
import pathlib, evalkit
for path in sorted(pathlib.Path("scenarios").glob("*/*.yaml"), reverse=True):
    print(evalkit.run_case(evalkit.load_case(path)).status)
"""


def test_lint_smoke_mutate_the_schema_and_the_api_see_the_same_names(two: Project) -> None:
    two.write("api.py", API)
    for command in ("lint", "smoke", "mutate"):
        result = two.run_module("evalkit", command)
        assert result.ret == 0, result.outlines
        assert "unknown" not in result.stdout.str()
    assert two.run_module("api").outlines == ["passed"] * 6
    assert "own_check" in two.run_module("evalkit", "schema").stdout.str()


KINDS = {
    "agent": ("agent: outer\n", "{response_contains: x}", "unknown agent 'outer'"),
    "check": ("agent: all\n", "{inner_check: true}", "unknown key 'inner_check'"),
    "operator": (
        "agent: all\n",
        "{expected_function_calls: [{function_name: f, arguments: {a: {$inner: 1}}}]}",
        "unknown operator '$inner'",
    ),
}


@pytest.mark.parametrize("selected", ["scenarios/other", "scenarios"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_neighbours_names_are_unknown_whatever_is_selected(project: Project, kind: str, selected: str) -> None:
    agent, expected, problem = KINDS[kind]
    project.write("conftest.py", "import evalkit\n\n@evalkit.agent('all')\ndef run(task):\n    return 'x'\n")
    project.write(
        "scenarios/inner/conftest.py",
        "import evalkit\n\n@evalkit.agent('outer')\ndef outer(task):\n    return 'x'\n\n\n"
        "evalkit.check('inner_check')(print)\nevalkit.operator('inner')(print)\n",
    )
    project.write("scenarios/inner/a_001.yaml", "agent: all\ninput: {message: x}\nexpected_output: {email_sent: false}")
    project.write("scenarios/other/a_001.yaml", f"{agent}input: {{message: x}}\nexpected_output: {expected}\n")
    project.run(selected)
    (verdict,) = [verdict for verdict in project.run_file.verdicts if "other" in verdict.case_id]
    assert verdict.status == "error"
    message = verdict.reasons[0].message
    assert problem in message or kind == "agent"
    if kind == "agent":
        assert message.startswith(  # what other tests' modules have registered holds here, too
            "agent 'outer' is registered in scenarios/inner/conftest.py, for the cases in that folder alone; "
            "move it to scenarios/conftest.py. Registered for this folder: "
        )
    elif selected == "scenarios":
        assert "is registered in scenarios/inner/conftest.py:" in message


SAYS = "import evalkit\n\n@evalkit.agent('desk')\ndef desk(task):\n    return '{word}'\n"
DESK_CASE = "agent: desk\ninput: {message: x}\nexpected_output: {response_contains: %s}\n"


def test_the_nearest_counts_and_a_plugin_s_holds_everywhere(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(project.root))
    project.write("desk_plugin.py", SAYS.replace("{word}", "plugin"))
    project.write("conftest.py", "")
    project.write("scenarios/outer/conftest.py", SAYS.replace("{word}", "outer"))
    project.write("scenarios/outer/inner/conftest.py", SAYS.replace("{word}", "inner"))
    for folder, word in (
        ("far", "plugin"),
        ("outer", "outer"),
        ("outer/inner", "inner"),
        ("outer/inner/deep", "inner"),
    ):
        project.write(f"scenarios/{folder}/a_001.yaml", DESK_CASE % word)
    assert project.run("-p", "desk_plugin").ret == 0
    assert len(statuses(project)) == 4


@pytest.mark.parametrize("selected", [("scenarios/b",), ("scenarios",), ("scenarios/c", "scenarios/b")])
def test_a_module_s_names_are_for_the_conftest_files_that_import_it(
    project: Project, selected: tuple[str, ...]
) -> None:
    project.write("conftest.py", "")
    project.write("own_shop/__init__.py", "")
    project.write("own_shop/desks.py", SAYS.replace("{word}", "module"))
    project.write("own_shop/all.py", "from . import desks\n")
    for folder, text in (("a", "import own_shop.desks"), ("b", "from own_shop import all"), ("c", "")):
        project.write(f"scenarios/{folder}/conftest.py", text + "\n")
        project.write(f"scenarios/{folder}/a_001.yaml", DESK_CASE % "module")
    project.run_apart(*selected)
    found = statuses(project)
    assert found.pop("b/a_001.yaml") == "passed"
    assert found.pop("c/a_001.yaml", "error") == "error"
    assert set(found.values()) <= {"passed"}


@pytest.mark.parametrize("folder", [".", "scenarios"])
def test_a_name_twice_in_one_conftest_is_an_error_that_names_both(project: Project, folder: str) -> None:
    text = SAYS.replace("{word}", "first") + "\n\n@evalkit.agent('desk')\ndef desk(task):\n    return 'second'\n"
    project.write("conftest.py", "")
    project.write(f"{folder}/conftest.py", text)
    project.write("scenarios/a_001.yaml", DESK_CASE % "second")
    result = project.run_apart()
    assert result.ret != 0
    file = f"{folder}/conftest.py".removeprefix("./")
    text = result.stdout.str() + result.stderr.str()
    assert "agent 'desk' is registered twice: " in text
    assert f"({file}:3)" in text
    assert f"({file}:8)" in text


def test_a_conftest_and_a_module_that_it_imports_are_one_place(project: Project) -> None:
    project.write("own_desks_b.py", SAYS.replace("{word}", "module"))
    project.write("conftest.py", "import own_desks_b\n" + SAYS.replace("{word}", "own"))
    project.write("scenarios/a_001.yaml", DESK_CASE % "own")
    project.run_apart()
    (verdict,) = project.run_file.verdicts
    assert verdict.status == "error"
    assert "agent 'desk' is registered twice: " in verdict.reasons[0].message


@pytest.mark.parametrize("options", [(), ("-n", "2")])
def test_several_projects_in_one_run_lose_no_case(project: Project, options: tuple[str, ...]) -> None:
    """pytest's root is the first project; cases of the others are named by their whole paths."""
    for word in ("p1", "p2", "p3"):
        project.write(f"{word}/pyproject.toml", '[tool.pytest.ini_options]\n[tool.evalkit]\npaths = ["scenarios"]\n')
        project.write(f"{word}/scenarios/conftest.py", SAYS.replace("{word}", word))
        project.write(f"{word}/scenarios/a_001.yaml", DESK_CASE % word)
    result = project.run_apart(*options, *(f"{word}/scenarios" for word in ("p1", "p2", "p3")))
    result.stdout.fnmatch_lines(["✓ scenarios/a_001*", "✓ /*/p2/scenarios/a_001*", "gate met: 3 of 3 cases passed*"])


def test_a_marked_test_has_the_names_of_its_case_s_folder_and_gives_those_of_its_own(project: Project) -> None:
    project.write("conftest.py", "")
    project.write("scenarios/conftest.py", SAYS.replace("{word}", "case"))
    project.write("scenarios/a_001.yaml", DESK_CASE % "case")
    project.write("tests/conftest.py", SAYS.replace("desk", "clerk").replace("{word}", "case"))
    project.write(
        "tests/test_desk.py",
        "import pytest\n\n@pytest.mark.evalkit('scenarios')\n@pytest.mark.parametrize('agent', [None, 'clerk'])\n"
        "def test_desk(evalkit_case, agent):\n    evalkit_case.run(agent)\n",
    )
    project.run_plainly("tests").assert_outcomes(passed=2)


def test_pytest_imports_a_conftest_once_and_evalkit_not_again(project: Project) -> None:
    project.write("conftest.py", "")
    project.write("scenarios/conftest.py", "print('imported')\n" + SAYS.replace("{word}", "case"))
    project.write("scenarios/other/conftest.py", "")
    project.write("scenarios/a_001.yaml", DESK_CASE % "case")
    project.write("scenarios/other/a_001.yaml", DESK_CASE % "case")
    result = project.run_apart("-s")
    assert result.stdout.str().count("imported") == 1
    assert result.ret == 0


def test_lint_takes_each_folder_s_agent_and_says_where_another_one_s_check_is(project: Project) -> None:
    project.write("conftest.py", "")
    for word in ("left", "right"):
        agent = (
            SAYS.replace("{word}", word) + f"\n\n@evalkit.check('only_{word}')\ndef only(expected, transcript): ...\n"
        )
        project.write(f"scenarios/{word}/conftest.py", agent)
        project.write(f"scenarios/{word}/a_001.yaml", DESK_CASE % word)
    project.write(
        "scenarios/right/b_001.yaml", "agent: desk\ninput: {message: x}\nexpected_output: {only_left: true}\n"
    )
    result = project.run_module("evalkit", "lint")
    assert [line.partition(": error ")[2] for line in result.outlines if ": error " in line] == [
        "L509 invalid-case: unknown key 'only_left' in expected_output; 'only_left' is registered in "
        "scenarios/left/conftest.py, for the cases in that folder alone"
    ]
