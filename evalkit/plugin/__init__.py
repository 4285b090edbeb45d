"""The pytest plugin: `pytest --evalkit` runs case files as tests and gates on them.

This module is loaded by every pytest run of its environment. So it imports nothing that pytest has not imported
itself, and registers the hooks that do the work only under ``--evalkit``, or when a test bears the mark ``evalkit``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from evalkit.plugin.options import add_options, explain_misspelt_flag, find_idle_flag, is_case_path

if TYPE_CHECKING:
    from evalkit.plugin.fixture import EvalkitCase


def pytest_addoption(parser: pytest.Parser) -> None:
    add_options(parser)


def pytest_load_initial_conftests(args: list[str]) -> None:
    wrong = explain_misspelt_flag(args)
    if wrong is not None:
        raise pytest.UsageError(wrong)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "evalkit(*paths): run the test for each case in these files, folders or globs: evalkit_case.run(agent)",
    )
    if config.getoption("evalkit"):
        from evalkit.plugin.plain_imports import install_plain_finder

        install_plain_finder(config)
        from evalkit.plugin.session import start

        start(config)
    elif (idle := find_idle_flag(config.invocation_params.args)) is not None:
        raise pytest.UsageError(f"evalkit: {idle} does nothing without --evalkit; give both")


def pytest_report_header(config: pytest.Config) -> str | None:
    if not config.getoption("evalkit") and any(map(is_case_path, config.args)):
        return "evalkit: case files run with --evalkit"
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.definition.get_closest_marker("evalkit") is not None:
        if not metafunc.config.getoption("evalkit"):
            from evalkit.plugin.plain_imports import install_plain_finder

            install_plain_finder(metafunc.config)
        from evalkit.plugin.marked import parametrize

        parametrize(metafunc)


@pytest.fixture
def evalkit_case(request: pytest.FixtureRequest) -> EvalkitCase:
    """The case that this test runs, one of those that its mark names: ``evalkit_case.run(agent)``."""
    tests = request.config.pluginmanager.get_plugin("evalkit-marked")
    if tests is None or not hasattr(request, "param"):
        pytest.fail(
            'evalkit_case is for tests with a mark that names cases: @pytest.mark.evalkit("scenarios/desk")', False
        )
    case: EvalkitCase = tests.get_fixture(request.node)
    return case
