"""`evalkit lint`: options from [tool.evalkit.lint] and the command line, and what is printed or changed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

import evalkit
from evalkit.lint.baseline import baseline_text
from evalkit.lint.fixing import apply, planned
from evalkit.lint.formats import rendered
from evalkit.lint.options import PROJECT_KEYS, LintOptions, options_of_project
from evalkit.lint.report import LintReport, lint
from evalkit.lint.rules import GROUPS, RULES
from evalkit.project import project_table, read_value

DEFAULT_BASELINE = "evalkit-lint-baseline.json"


class Asked(Struct, frozen=True, kw_only=True):
    """What the command line asks for, beside the options."""

    form: str = "text"
    fix: bool = False
    diff: bool = False
    write_baseline: bool = False


def run_lint(paths: tuple[str, ...], asked: Asked, **told: Any) -> tuple[str, int]:
    """What to print, and the exit status: 1 if a finding is severe enough to fail, else 0."""
    options = project_options(Path.cwd(), paths, **told)
    if asked.write_baseline:
        return _written(options), 0
    report = lint(options)
    lines: list[str] = []
    if asked.fix or asked.diff:
        changes = planned(report.findings, options.root)
        if asked.diff:
            return "\n".join(changes.diff()), report.exit_status
        apply(changes, options.root)
        lines = [f"mended: {changes.mended}"] if asked.form == "text" and changes.mended else []
        report = lint(options)
    return "\n".join([*lines, rendered(report, asked.form, version=evalkit.__version__)]), report.exit_status


def project_options(root: Path, paths: tuple[str, ...] = (), **told: Any) -> LintOptions:
    """The options of the project in `root`; `paths` and `told` are the command line's."""
    table = project_table(root)
    said = {name: read_value(name, table[name], f"tool.evalkit.{name}") for name in PROJECT_KEYS if name in table}
    return options_of_project(said, root=root, paths=paths, **told)


def _written(options: LintOptions) -> str:
    name = options.baseline or DEFAULT_BASELINE
    report: LintReport = lint(replace(options, baseline=None))
    (options.root / name).write_text(baseline_text(report.findings), "utf-8")
    hint = "" if options.baseline else f'; now set baseline = "{name}" in [tool.evalkit.lint]'
    return f"wrote {len(report.findings)} findings to {name}{hint}"


def rule_lines() -> Iterator[str]:
    """The rules, one line each."""
    for prefix, title in GROUPS.items():
        yield f"{title}"
        for rule in RULES:
            if rule.code.startswith(prefix):
                marks = "".join([" (--fix)" if rule.fixable else "", " (off by default)" if rule.optional else ""])
                yield f"  {rule.code} {rule.name}: {rule.severity}{marks}. {rule.summary}"
