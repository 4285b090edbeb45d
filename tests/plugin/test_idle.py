"""Installed and not used, the plugin is silent and costs next to nothing."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import Any

import pytest

Project = Any
LISTING = "import sys\ndef test_list(): print('LOADED', *sorted(sys.modules))\n"


def loaded(pytester: pytest.Pytester, *arguments: str) -> set[str]:
    pytester.makepyfile(test_list=LISTING)
    result = pytester.run(sys.executable, "-m", "pytest", "-s", "-p", "no:hypothesispytest", *arguments)
    assert result.ret == 0
    return set(next(line for line in result.outlines if "LOADED" in line).partition("LOADED ")[2].split())


def test_an_idle_plugin_loads_its_own_two_modules_and_nothing_else(pytester: pytest.Pytester) -> None:
    idle = loaded(pytester) - loaded(pytester, "-p", "no:evalkit")
    assert idle == {"evalkit", "evalkit.plugin", "evalkit.plugin.options"}


def test_its_options_are_in_pytest_s_help(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_inprocess("--help")
    result.stdout.fnmatch_lines(
        [
            "evaluation of tool-calling agents (evalkit):",
            "  --evalkit *run the case files below evalkit_paths",
            "  --evalkit-min-pass-rate=PERCENT",
            "  evalkit_paths (args):*",
        ]
    )


# What a run of one passing case that needs none of it does not import: of others, and of evalkit's own rooms.
HEAVY = (
    *("click", "deepdiff", "genson", "google.genai", "h11", "httpx", "jinja2", "jsonschema", "pydantic", "regex"),
    *("rich.console", "rstr", "ruamel"),
)
UNUSED_ROOMS = ("adapters", "cli", "importing", "lint", "probing")
UNUSED = (
    *("checks.custom", "checks.older", "checks.on_fault", "checks.response", "checks.response_schema"),
    *("checks.contradictions", "checks.matching.assignment", "checks.matching.solving", "checks.sentences"),
    *("checks.run_checks", "checks.strays", "checks.times", "gate.comparison", "stats.comparison", "stats.repeats"),
    *("functions.callables", "functions.conversion", "functions.directives", "functions.schemaproblems"),
    *("functions.failurereader", "functions.installing", "functions.mcp_server", "functions.offering"),
    *("functions.patchable", "functions.patchpoint", "functions.swapping", "functions.targets"),
    *("operators.application", "operators.builtin", "operators.difference", "operators.extension"),
    *("operators.hints", "operators.operand", "pipeline.faults", "pipeline.repeats", "plugin.markedverdicts"),
    *("reports.faults", "reports.html", "reports.junit", "reports.markdown", "reports.otel", "reports.stored"),
    *(
        "checks.references",
        "reports.trace",
        "spec.discovery",
        "spec.extending",
        "spec.schema",
        "yamlfile.peeking",
        "yamlfile.syntax",
    ),
    *("agents.conftests", "agents.http_agent", "agents.instruction", "agents.loop", "agents.offered"),
    *("agents.process_agent", "agents.signatures", "agents.grader", "agents.grading", "checks.graded"),
    *("pipeline.grading", "providers.grades", "reports.graded", "stats.grades"),
    *("plugin.linting", "plugin.updating", "plugin.faults", "plugin.buckets", "execution.shards"),
    *("providers.openai_chat", "providers.gemini", "providers.cassette", "providers.stream", "providers.textcalls"),
)


def test_a_passing_case_imports_nothing_that_it_does_not_need(project: Project) -> None:
    project.write(
        "scenarios/conftest.py",
        "def pytest_unconfigure():\n    import sys\n    print('LOADED', *sorted(sys.modules))\n",
    )
    project.case("a_001")
    result = project.run_apart("-q", "-s", "--color=no")
    assert result.ret == 0
    loaded = set(next(line for line in result.outlines if "LOADED" in line).partition("LOADED ")[2].split())
    unused = {f"evalkit.{name}" for name in (*UNUSED_ROOMS, *UNUSED)}
    assert loaded & {*HEAVY, *unused} == set()
    assert [name for name in unused if find_spec(name) is None] == []


def test_its_modules_are_not_rewritten_for_assertions_though_a_wheel_marks_them(project: Project) -> None:
    project.write("marks.py", "import pytest\npytest.register_assert_rewrite('evalkit')\n")
    project.write(
        "scenarios/conftest.py",
        "def pytest_unconfigure():\n    import sys\n"
        "    print('LOADERS', {type(module.__loader__).__name__ for name, module in sys.modules.items()\n"
        "                      if name.startswith(('evalkit.spec', 'evalkit.checks'))})\n",
    )
    project.case("a_001")
    result = project.run_apart("-s", "-p", "marks")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["LOADERS {'SourceFileLoader'}"])


def test_the_way_round_rewriting_ends_with_the_run(project: Project) -> None:
    project.case("a_001")
    before = list(sys.meta_path)
    assert project.run().ret == 0
    assert [finder for finder in sys.meta_path if finder not in before] == []
