"""`evalkit gate` and `evalkit compare`: the gate, and what changed, on run files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from evalkit.gate import decide
from evalkit.model.run import MET, MISSED, Policy
from evalkit.project import project_table, read_policy, read_value
from evalkit.reports import load_run
from evalkit.reports.hostile import visible

_NO_DEMANDS = Policy(min_pass_rate="0")  # noqa: S106 - a rate, no password
_WORDS = {MET: "gate met", MISSED: "gate MISSED"}


def gate_lines(run: Path, options: Mapping[str, object], baseline: Path | None) -> tuple[list[str], int]:
    """The decision in words, and its exit status. `options` win over [tool.evalkit] of the current folder."""
    table = project_table(Path.cwd())
    said = {name: value for name, value in options.items() if value is not None}
    typed = {name: read_value(name, value, f"--{name.replace('_', '-')}") for name, value in said.items()}
    base = baseline or (Path(str(table["baseline"])) if "baseline" in table else None)
    decision = decide(load_run(run), Policy(**read_policy(table) | typed), load_run(base) if base else None)
    first, *others = decision.reasons
    lines = [f"{_WORDS.get(decision.status, 'gate NOT MEASURED')}: {first}"]
    lines += [f"  {line}" for line in (*others, *decision.facts["notes"])]
    return [visible(line) for line in lines], decision.exit_status


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
