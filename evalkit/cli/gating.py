"""`evalkit gate` and `evalkit compare`: the gate, and what changed, on run files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from evalkit.gate.decision import decide
from evalkit.model.run import MET, MISSED, GateDecision, Policy, Run
from evalkit.project import project_table, read_policy, read_value
from evalkit.reports.hostile import visible
from evalkit.reports.runfile import load_run

_NO_DEMANDS = Policy(min_pass_rate="0")  # noqa: S106 - a rate, no password
_WORDS = {MET: "gate met", MISSED: "gate MISSED"}


def gate_lines(run: Path, options: Mapping[str, object], baseline: Path | None) -> tuple[list[str], int]:
    """The decision in words, and its exit status. `options` win over [tool.evalkit] of the current folder."""
    demanded = policy(options)
    decision = decide(load_run(run), demanded, baseline_run(baseline))
    return decision_lines(decision), decision.exit_status


def decision_lines(decision: GateDecision) -> list[str]:
    """What was decided, and why."""
    first, *others = decision.reasons
    lines = [f"{_WORDS.get(decision.status, 'gate NOT MEASURED')}: {first}"]
    lines += [f"  {line}" for line in (*others, *decision.facts["notes"])]
    return [visible(line) for line in lines]


def baseline_run(path: Path | None) -> Run | None:
    """The run at `path`, else the one that [tool.evalkit] names, else none."""
    if path is None:
        table = project_table(Path.cwd())
        path = Path(str(table["baseline"])) if "baseline" in table else None
    return None if path is None else load_run(path)


def policy(options: Mapping[str, object]) -> Policy:
    """What is demanded: by [tool.evalkit] of the current folder, and by `options`, which win."""
    said = {name: value for name, value in options.items() if value is not None}
    typed = {name: read_value(name, value, f"--{name.replace('_', '-')}") for name, value in said.items()}
    return Policy(**read_policy(project_table(Path.cwd())) | typed)


def changes(base: Path, head: Path) -> Iterator[str]:
    """One line per case that changed, by what changed; a line that says so if none did."""
    facts = decide(load_run(head), _NO_DEMANDS, load_run(base)).facts
    found = {what: ids for what, ids in facts["changes"].items() if ids}
    yield f"{facts['passed']} of {facts['passed'] + facts['failed']} cases passed"
    if not found:
        yield "no case changed"
    for what, ids in found.items():
        yield f"{what.replace('_', ' ')}:"
        yield from (f"  {visible(case_id)}" for case_id in ids)
    yield from map(visible, facts["how_sure"])
