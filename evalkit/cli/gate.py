"""`evalkit gate` and `evalkit compare`: the gate, and what changed, on run files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from evalkit.config import read_policy, read_project_table, read_value
from evalkit.gate.decision import decide
from evalkit.model.run import MET, MISSED, GateDecision, Policy, Run
from evalkit.reports.run_file import load_run
from evalkit.text.format import escape_controls

_EMPTY_POLICY = Policy(min_pass_rate="0")  # noqa: S106 - a rate, no password
_WORDS = {MET: "gate met", MISSED: "gate MISSED"}


def describe_gate(run: Path, options: Mapping[str, object], baseline: Path | None) -> tuple[list[str], int]:
    """Return the decision in words, and its exit status. `options` win over [tool.evalkit] of the current folder."""
    demanded = build_policy(options)
    decision = decide(load_run(run), demanded, load_baseline(baseline))
    return describe_decision(decision), decision.exit_status


def describe_decision(decision: GateDecision) -> list[str]:
    """Return the lines of a decision: the outcome, then reasons and notes."""
    first, *reasons = decision.reasons
    lines = [f"{_WORDS.get(decision.status, 'gate NOT MEASURED')}: {first}"]
    lines += [f"  {line}" for line in (*reasons, *decision.facts["notes"])]
    return [escape_controls(line) for line in lines]


def load_baseline(path: Path | None) -> Run | None:
    """Return the run at `path`, else the one that [tool.evalkit] names, else None."""
    if path is None:
        table = read_project_table(Path.cwd())
        path = Path(str(table["baseline"])) if "baseline" in table else None
    return None if path is None else load_run(path)


def build_policy(options: Mapping[str, object]) -> Policy:
    """Return the policy of [tool.evalkit] of the current folder, with the `options` that are given."""
    overrides = {name: value for name, value in options.items() if value is not None}
    typed = {name: read_value(name, value, f"--{name.replace('_', '-')}") for name, value in overrides.items()}
    return Policy(**read_policy(read_project_table(Path.cwd())) | typed)


def describe_changes(base: Path, head: Path) -> Iterator[str]:
    """Yield the pass rate, a line per case that changed, grouped by kind of change, and the significance."""
    facts = decide(load_run(head), _EMPTY_POLICY, load_run(base)).facts
    changes_by_kind = {what: ids for what, ids in facts["changes"].items() if ids}
    yield f"{facts['passed']} of {facts['passed'] + facts['failed']} cases passed"
    if not changes_by_kind:
        yield "no case changed"
    for what, ids in changes_by_kind.items():
        yield f"{what.replace('_', ' ')}:"
        yield from (f"  {escape_controls(case_id)}" for case_id in ids)
    yield from map(escape_controls, facts["how_sure"])
