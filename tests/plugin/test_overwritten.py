"""Another distribution has written its package over `evalkit/__init__.py`."""

from __future__ import annotations

import pytest

import evalkit
from evalkit.plugin import overwritten
from evalkit.plugin.overwritten import refuse_overwritten_package


def test_whose_files_these_are_is_told_with_the_commands_that_mend_it(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_overwritten_package()
    monkeypatch.delattr(evalkit, "DISTRIBUTION")
    monkeypatch.setattr(overwritten, "packages_distributions", lambda: {"evalkit": ["pytest-evalkit", "evalkit"]})
    monkeypatch.setattr(overwritten, "version", {"evalkit": "0.2.1"}.__getitem__)
    with pytest.raises(
        pytest.UsageError,
        match=r"evalkit 0\.2\.1 installs a package 'evalkit' too.*pip uninstall evalkit pytest-evalkit; pip install",
    ):
        refuse_overwritten_package()
