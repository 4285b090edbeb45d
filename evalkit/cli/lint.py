"""`evalkit lint`: options from [tool.evalkit.lint] and the command line, and what is printed or changed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

import evalkit
from evalkit.config import read_options
from evalkit.lint.finding import apply_changes, plan_changes
from evalkit.lint.options import PROJECT_KEYS, LintOptions, read_project_options
from evalkit.lint.report import check_project, render_report, serialize_baseline
from evalkit.lint.rules import GROUPS, RULES

DEFAULT_BASELINE = "evalkit-lint-baseline.json"


class LintActions(Struct, frozen=True, kw_only=True):
    """The actions that the command line asks for, beside the options."""

    form: str = "text"
    fix: bool = False
    diff: bool = False
    write_baseline: bool = False


def run_lint(paths: tuple[str, ...], actions: LintActions, **overrides: Any) -> tuple[str, int]:
    """Return the text to print, and the exit status: 1 if a finding is severe enough to fail, else 0."""
    options = load_lint_options(Path.cwd(), paths, **overrides)
    if actions.write_baseline:
        name = options.baseline or DEFAULT_BASELINE
        report = check_project(replace(options, baseline=None))
        (options.root / name).write_text(serialize_baseline(report.findings), "utf-8")
        hint = "" if options.baseline else f'; now set baseline = "{name}" in [tool.evalkit.lint]'
        return f"wrote {len(report.findings)} findings to {name}{hint}", 0
    report = check_project(options)
    lines: list[str] = []
    if actions.fix or actions.diff:
        changes = plan_changes(report.findings, options.root)
        if actions.diff:
            return "\n".join(changes.format_diff()), report.exit_status
        apply_changes(changes, options.root)
        lines = [f"mended: {changes.fixed_count}"] if actions.form == "text" and changes.fixed_count else []
        report = check_project(options)
    return "\n".join([*lines, render_report(report, actions.form, version=evalkit.__version__)]), report.exit_status


def load_lint_options(root: Path, paths: tuple[str, ...] = (), **overrides: Any) -> LintOptions:
    """Return the options of the project in `root`, with `paths` and `overrides` of the command line."""
    options = read_options(root)
    own_options = {name: options[name] for name in PROJECT_KEYS if name in options}
    return read_project_options(own_options, root=root, paths=paths, **overrides)


def describe_rules() -> Iterator[str]:
    """Yield a line for each group of rules and for each rule."""
    for prefix, title in GROUPS.items():
        yield f"{title}"
        for rule in RULES:
            if rule.code.startswith(prefix):
                marks = "".join([" (--fix)" if rule.fixable else "", " (off by default)" if rule.optional else ""])
                yield f"  {rule.code} {rule.name}: {rule.severity}{marks}. {rule.summary}"
