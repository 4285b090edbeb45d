"""Names, parameters and formats cross-checked before any model runs: declarations, code, dispatch, instructions, cases.

`lint` reads a project and gives a report of findings; code is parsed and never run, unless `--import` is given. The
rules are in `rules`, one table; how a report is written, in `formats`; how it is mended, in `fixing`.
"""

from __future__ import annotations

from evalkit.lint.finding import Finding
from evalkit.lint.options import LintOptions, read_options
from evalkit.lint.report import LintReport, check_project
from evalkit.lint.rules import RULES, Rule

__all__ = ["RULES", "Finding", "LintOptions", "LintReport", "Rule", "check_project", "read_options"]
