"""The attack suite uses the projects of tests/plugin."""

from __future__ import annotations

import signal

import pytest

from tests.plugin.conftest import project

__all__ = ["heed_interrupts", "project"]


@pytest.fixture(autouse=True)
def heed_interrupts() -> None:
    """Let children be interrupted also where a script has started pytest in the background, which ignores SIGINT."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
