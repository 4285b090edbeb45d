"""The tests of loading run over both parsers: libyaml's, and PyYAML's own for machines without it."""

from __future__ import annotations

import pytest

from evalkit.yamlfile import events


@pytest.fixture(params=["libyaml", "python"])
def parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both parsers in turn."""
    if request.param == "python":
        monkeypatch.setattr(events, "open_parser", events.PythonParser)
    return str(request.param)
