"""Findings of `evalkit lint` as warnings of the collection, if [tool.evalkit.lint] has ``in_collection = true``."""

from __future__ import annotations

import os
import warnings
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

import pytest

from evalkit.errors import UsageError
from evalkit.hosts.lint.finding import NOTE
from evalkit.hosts.lint.options import read_project_options
from evalkit.hosts.lint.report import check_project
from evalkit.text.format import escape_controls


class LintWarning(UserWarning):
    """A finding, whose message begins with the rule's code, so that ``-W "ignore:L508"`` silences one rule."""


class Linting:
    """The hook that lints once, in the process that controls the session."""

    def __init__(self, table: Mapping[str, Any], root: Path) -> None:
        self._options = read_project_options(table, root=root)

    @pytest.hookimpl(wrapper=True)
    def pytest_collection(self) -> Generator[None, Any, Any]:
        """Warn where pytest records warnings; xdist's controller, which collects nothing, runs the wrapper too."""
        collected = yield
        try:
            for finding in check_project(self._options).findings:
                if finding.severity != NOTE:
                    text = escape_controls(f"{finding.rule.code} {finding.name}: {finding.message}; {finding.advice}")
                    file = os.path.join(self._options.root, finding.location.file)
                    try:
                        warnings.warn_explicit(text, LintWarning, file, finding.location.line or 1)
                    except LintWarning:  # -W error
                        raise pytest.UsageError(f"evalkit: {finding.location}: {text}") from None
        except UsageError as error:
            raise pytest.UsageError(f"evalkit: {error}") from None
        return collected
