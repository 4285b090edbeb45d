"""The pytest plugin: `pytest --evalkit` runs case files as tests and gates on them.

This module is loaded by every pytest run of its environment. So it imports nothing that pytest has not imported
itself, and registers the hooks that do the work only under ``--evalkit``.
"""

from __future__ import annotations

import pytest

from evalkit.plugin.options import add_options


def pytest_addoption(parser: pytest.Parser) -> None:
    add_options(parser)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("evalkit"):
        from evalkit.plugin.plain_imports import import_plainly

        import_plainly(config)
        from evalkit.plugin.starting import start

        start(config)
