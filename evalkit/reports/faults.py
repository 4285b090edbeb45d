"""The fault sweep in reports: in a trace a line per function and what came of its failing, ways that went alike told as
one; over a run how much was measured, since silence would be taken for a pass.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from evalkit.model.verdict import ERROR, FAILED, NOT_RUN, PASSED, FaultRun, Verdict
from evalkit.reports.hostile import escape_controls, escape_lines
from evalkit.reports.spans import Line

_FAULT_MARKS = {PASSED: ("✓", "good"), FAILED: ("✗", "bad"), ERROR: ("!", "error"), NOT_RUN: ("–", "quiet")}


def build_fault_lines(verdict: Verdict) -> list[Line]:
    """``under check_warranty timeout: ✗ the agent raised KeyError``."""
    groups: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}
    for run in verdict.faults:
        groups.setdefault((run.function, run.status, _list_fault_messages(run)), []).append(run.fault)
    fault_lines: list[Line] = []
    for (function, status, messages), faults in groups.items():
        mark, style = _FAULT_MARKS[status]
        head = f"  under {escape_controls(function)} {', '.join(faults)}: "
        if not messages:
            fault_lines.append(((head, ""), (mark, style)))
            continue
        first, *continuation = [line for message in messages for line in escape_lines(message).split("\n")]
        fault_lines.append(((head, ""), (f"{mark} {first}", style)))
        fault_lines += [((" " * 7 + line, style),) for line in continuation]
    return fault_lines


def _list_fault_messages(run: FaultRun) -> tuple[str, ...]:
    return tuple(dict.fromkeys(reason.message or reason.code for reason in run.reasons))


def collect_fault_reasons(verdict: Verdict) -> set[tuple[str, str, int | None]]:
    """Code, message and call of the case's own reasons that `fault_lines` shows."""
    return {(reason.code, run.head + reason.message, None) for run in verdict.faults for reason in run.reasons}


def format_sweep_summary(runs: Counter[str], cases: int) -> str:
    """``8 fault runs: 5 passed, 1 failed, 2 not measurable offline``, of a count by status over so many cases."""
    total = sum(runs.values())
    if not total:
        return f"nothing was swept: in {cases} case{'' if cases == 1 else 's'}, none passed with a call"
    words = {FAILED: "failed", ERROR: "could not be measured", NOT_RUN: "not measurable offline"}
    measured = total - runs[NOT_RUN] - runs[ERROR]
    parts = [f"{runs[status]} {word}" for status, word in words.items() if runs[status]]
    if measured > runs[FAILED]:
        parts.insert(0, f"{measured - runs[FAILED]} passed")
    swept = f"{total} fault run{'' if total == 1 else 's'}"
    nothing = "; NOTHING was measured, sweep with a model (--evalkit-model)" if not measured else ""
    return f"{swept}: {', '.join(parts)}{nothing}"


def count_fault_runs(verdicts: Iterable[Verdict]) -> Counter[str]:
    """How many fault runs ended with which status."""
    return Counter(run.status for verdict in verdicts for run in verdict.faults)


def count_by_function(verdicts: Iterable[Verdict]) -> dict[str, dict[str, Counter[str]]]:
    """Function -> fault -> how many runs ended with which status, in the order in which they were met."""
    rows: dict[str, dict[str, Counter[str]]] = {}
    for verdict in verdicts:
        for run in verdict.faults:
            rows.setdefault(run.function, {}).setdefault(run.fault, Counter())[run.status] += 1
    return rows


def format_faults(verdict: Verdict) -> str:
    """``check_warranty: timeout passed, error failed; send_email: ...``, for tables and properties."""
    functions: dict[str, list[str]] = {}
    for run in verdict.faults:
        functions.setdefault(run.function, []).append(f"{run.fault} {run.status}")
    return "; ".join(f"{function}: {', '.join(outcomes)}" for function, outcomes in functions.items())
