"""Time and memory of long runs: both are to grow with the number of cases, and no faster.

    python benchmarks/bench_memory.py [--sizes 1000 5000 10000] [--bare] [--html] [--json FILE]

For each size: CPU seconds, the peak of the process, and what each further case adds to both. `--bare` runs the same
cases as a parametrised test over one JSON file beside it. Cases lie in folders of 1,000, as links to the same 1,000
files; the agent answers at once. 100,000 cases take some minutes and 400 MB of disk for the run file.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench_suite import BARE_COMMAND, RUN, Cost, cost, project

_FOLDER = 1_000


def suite(folder: Path, count: int) -> None:
    """`count` cases in folders of a thousand."""
    project(folder, min(count, _FOLDER))
    first = folder / "scenarios"
    names = sorted(path.name for path in first.glob("*.yaml"))
    cases = json.loads((folder / "cases.json").read_text())
    for number in range(1, -(-count // _FOLDER)):
        further = first / f"part_{number:04}"
        further.mkdir()
        for name in names:
            os.link(first / name, further / name)
    every = [{**case, "id": f"{number}_{case['id']}"} for number in range(-(-count // _FOLDER)) for case in cases]
    (folder / "cases.json").write_text(json.dumps(every))


def measured(count: int, command: list[str]) -> Cost:
    with tempfile.TemporaryDirectory() as name:
        suite(Path(name), count)
        return cost(command, Path(name))


def told(what: str, count: int, spent: Cost, before: tuple[int, Cost] | None) -> dict[str, Any]:
    """A line, and the same as data."""
    row = {"what": what, "cases": count, "cpu_s": round(spent.cpu, 1), "peak_mib": round(spent.memory / 1024)}
    more = ""
    if before is not None:
        cases = count - before[0]
        row["ms_per_case"] = round(1000 * (spent.cpu - before[1].cpu) / cases, 2)
        row["kib_per_case"] = round((spent.memory - before[1].memory) / cases, 1)
        more = f"   each further case {row['ms_per_case']} ms, {row['kib_per_case']} KiB"
    print(f"{what:<12} {count:>8,} cases {spent.cpu:8.1f} s {spent.memory / 1024:7.0f} MiB{more}", flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000, 5_000, 10_000])
    parser.add_argument("--bare", action="store_true")
    parser.add_argument("--html", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    commands = {"evalkit": RUN}
    if options.html:
        commands["with HTML"] = [*RUN, "--evalkit-html", "report.html"]
    if options.bare:
        commands["bare pytest"] = BARE_COMMAND
    rows = []
    before: dict[str, tuple[int, Cost]] = {}
    for count in options.sizes:
        for what, command in commands.items():
            spent = measured(count, command)
            rows.append(told(what, count, spent, before.get(what)))
            before[what] = (count, spent)
    if options.json:
        options.json.write_text(json.dumps({"python": sys.version, "rows": rows}, indent=2))


if __name__ == "__main__":
    main()
