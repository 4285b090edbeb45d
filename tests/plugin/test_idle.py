"""Installed and not used, the plugin is silent and costs next to nothing."""

from __future__ import annotations

import sys
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


@pytest.mark.parametrize("module", ["jsonschema", "deepdiff", "google.genai", "rich.console", "regex"])
def test_a_passing_case_without_need_loads_no_heavy_library(project: Project, module: str) -> None:
    """One process for all modules would do; one each says which it was."""
    project.write(
        "scenarios/conftest.py",
        f"def pytest_unconfigure():\n    import sys\n    assert {module!r} not in sys.modules\n",
    )
    project.case("a_001")
    result = project.run_apart("-q", "--color=no")
    assert "AssertionError" not in result.stderr.str()
    assert result.ret == 0


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
