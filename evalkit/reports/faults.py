"""The fault sweep in a trace: a line per function and what came of its failing, ways that went alike told as one."""

from __future__ import annotations

from evalkit.model.verdict import ERROR, FAILED, NOT_RUN, PASSED, FaultRun, Verdict
from evalkit.reports.hostile import visible, visible_lines
from evalkit.reports.spans import Line

_MARKS = {PASSED: ("✓", "good"), FAILED: ("✗", "bad"), ERROR: ("!", "error"), NOT_RUN: ("–", "quiet")}


def fault_lines(verdict: Verdict) -> list[Line]:
    """``under check_warranty timeout: ✗ the agent raised KeyError``."""
    groups: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}
    for run in verdict.faults:
        groups.setdefault((run.function, run.status, _said(run)), []).append(run.fault)
    shown: list[Line] = []
    for (function, status, said), faults in groups.items():
        mark, style = _MARKS[status]
        head = f"  under {visible(function)} {', '.join(faults)}: "
        if not said:
            shown.append(((head, ""), (mark, style)))
            continue
        first, *more = [line for message in said for line in visible_lines(message).split("\n")]
        shown.append(((head, ""), (f"{mark} {first}", style)))
        shown += [((" " * 7 + line, style),) for line in more]
    return shown


def _said(run: FaultRun) -> tuple[str, ...]:
    return tuple(dict.fromkeys(reason.message or reason.code for reason in run.reasons))


def reasons_told(verdict: Verdict) -> set[tuple[str, str, int | None]]:
    """Code, message and call of the case's own reasons that `fault_lines` shows."""
    return {(reason.code, run.head + reason.message, None) for run in verdict.faults for reason in run.reasons}
