"""Lint sees the cause without any model; its fix is the repair; an alias is recorded as one."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from evalkit.cli.lint import load_lint_options
from evalkit.hosts.lint.finding import apply_changes, plan_changes
from evalkit.hosts.lint.report import check_project
from evalkit.hosts.reports.trace import render_trace
from evalkit.records.verdict import Verdict
from evalkit.stats.accounting import Accounting, Channels

ROOT = Path(__file__).parents[2]
SUITE = ROOT / "scenarios" / "procedures"


def found_in(folder: str) -> list[str]:
    report = check_project(load_lint_options(ROOT, (f"scenarios/procedures/{folder}",)))
    return [
        f"{finding.location.file.removeprefix('scenarios/procedures/')} {finding.message}"
        for finding in report.findings
    ]


def test_lint_finds_the_cause() -> None:
    """Each name that differs, and the instruction that hid it."""
    differs = (
        "{0} declared as '{1}', dispatched as 'tool_{1}' in scenarios/procedures/as_found/tools.py: "
        "the prefix 'tool_' differs"
    )
    names = ("search_procedure", "search_guidelines", "search_rag")
    assert found_in("as_found") == [
        *(differs.format("as_found/declarations.py", name) for name in names),
        'as_found/instructions/analyst.md the instruction shows calls as text, <TOOL>name: "…"</TOOL>, '
        "while functions are declared for native calls",
    ]


def test_nothing_is_left_to_find_once_repaired() -> None:
    assert found_in("repaired") == []
    assert found_in("migrating") == []


def test_the_repaired_table_is_what_fix_makes_of_the_broken_one(tmp_path: Path) -> None:
    """The alias map is written by lint, not by hand."""
    shutil.copytree(
        SUITE, tmp_path / "scenarios" / "procedures", ignore=shutil.ignore_patterns("repaired", "migrating")
    )
    report = check_project(load_lint_options(tmp_path, ("scenarios/procedures",)))
    changes = plan_changes(report.findings, tmp_path)
    assert changes.fixed_count == 3
    apply_changes(changes, tmp_path)
    fixed = (tmp_path / "scenarios" / "procedures" / "as_found" / "tools.py").read_text("utf-8")
    repaired = (SUITE / "repaired" / "tools.py").read_text("utf-8")
    assert fixed.partition("TOOLS:")[2] == repaired.partition("TOOLS:")[2]


def test_a_call_by_an_alias_is_recorded_under_the_functions_name(verdicts: Callable[[str], dict[str, Verdict]]) -> None:
    """With the other name beside it, natively and as text."""
    calls = {stem: verdict.transcript.calls for stem, verdict in verdicts("migrating").items()}
    assert [(call.name, call.requested_name, call.channel) for call in calls["older_name_001"]] == [
        ("search_procedure", "tool_search_procedure", "native")
    ]
    assert [(call.name, call.requested_name, call.channel) for call in calls["older_name_002"]] == [
        ("search_procedure", "tool_search_procedure", "text"),
        ("search_rag", None, "native"),
    ]


def test_the_trace_shows_the_alias(verdicts: Callable[[str], dict[str, Verdict]]) -> None:
    shown = render_trace(verdicts("migrating")["older_name_002"])
    assert '✓ search_procedure(query="booking travel") [as tool_search_procedure] [written as text] → []' in shown


def test_a_call_by_an_alias_counts_for_the_function(accounting: Callable[[str], Accounting]) -> None:
    assert accounting("migrating").functions == {
        "search_procedure": Channels(native=1, text=1, mended=1),
        "search_rag": Channels(native=1),
    }


def test_without_the_alias_the_older_name_is_no_function(tmp_path: Path) -> None:
    """The migrating cases can fail: take the alias map away, and the call is refused and named."""
    from evalkit import Settings, load_case, run_case

    for part in ("scenarios/procedures/migrating", "mocks/cassettes/scenarios/procedures/migrating"):
        shutil.copytree(ROOT / part, tmp_path / part)
    instruction = tmp_path / "scenarios/procedures/migrating/analyst.md"
    text = instruction.read_text("utf-8")
    instruction.write_text(text.replace("    alias: [tool_search_procedure]\n", ""), "utf-8")
    file = tmp_path / "scenarios/procedures/migrating/older_name_001.yaml"
    verdict = run_case(load_case(file, root=tmp_path), settings=Settings(root=tmp_path))
    assert verdict.status == "failed"
    assert "unknown_function" in {reason.code for reason in verdict.reasons}
