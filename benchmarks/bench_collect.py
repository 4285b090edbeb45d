"""Collecting case files: against a 30-line pytest plugin that loads each of them with yaml.CSafeLoader.

    python benchmarks/bench_collect.py [--cases N] [--rounds N] [--json FILE]

collected            pytest --evalkit --collect-only, files without tags
with tags            the same, each file with tags near its beginning
with tags at the end the same, each file with tags as its last line, to which it is read
loaded               each file loaded and validated as for a run (load_case), without pytest
its parsing alone    yamlfile.read of each file, without pytest
bare pytest          one parametrised test over one JSON file with the same cases

Whole processes in turn, medians of the rounds' ratios, CPU time. No cache of evalkit's own; byte code is cached.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path

from bench_suite import BARE_COMMAND, PYTEST, RUN, Cost, cost, project

LOAD = """\
import os
from evalkit.spec import load_case
folder = "scenarios"
for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
    if entry.name.endswith(".yaml"):
        load_case(entry.path, root=os.getcwd())
"""
PARSE = """\
import os
from evalkit.yamlfile import read
for entry in sorted(os.scandir("scenarios"), key=lambda entry: entry.name):
    if entry.name.endswith(".yaml"):
        with open(entry.path, "rb") as file:
            assert not read(file.read(), entry.name).problems
"""
REFERENCE = "plugin on CSafeLoader"
COMMANDS = {
    REFERENCE: [*PYTEST, "-p", "no:evalkit", "--collect-only", "yamlmin"],
    "collected": [*RUN, "--collect-only"],
    "with tags": [*RUN, "--collect-only", "tags_first"],
    "with tags at the end": [*RUN, "--collect-only", "tags_last"],
    "loaded": [sys.executable, "-c", LOAD],
    "its parsing alone": [sys.executable, "-c", PARSE],
    "bare pytest": [*BARE_COMMAND, "--collect-only"],
}


def tagged(folder: Path) -> None:
    """Two more folders of the same cases, with tags."""
    tags = "tags: [smoke, slow]\n"
    for name in ("tags_first", "tags_last"):
        (folder / name).mkdir()
        (folder / name / "conftest.py").write_text((folder / "scenarios" / "conftest.py").read_text())
    for file in (folder / "scenarios").glob("*.yaml"):
        text = file.read_text()
        (folder / "tags_first" / file.name).write_text(text.replace("\nfunctions:", f"\n{tags}functions:", 1))
        (folder / "tags_last" / file.name).write_text(text + tags)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=5_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    costs: dict[str, list[Cost]] = {name: [] for name in COMMANDS}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        project(folder, options.cases)
        tagged(folder)
        for turn in range(options.rounds + 1):
            for row, command in COMMANDS.items():
                spent = cost(command, folder)
                if turn:  # the first round warms the caches of files and byte code
                    costs[row].append(spent)
    results = {}
    for row, found in costs.items():
        ratio = statistics.median(mine.cpu / other.cpu for mine, other in zip(found, costs[REFERENCE], strict=True))
        cpu, memory = statistics.median(one.cpu for one in found), statistics.median(one.memory for one in found) / 1024
        results[row] = {"ratio": round(ratio, 2), "cpu_s": round(cpu, 2), "peak_mib": round(memory)}
        print(f"{row:<22} {ratio:5.2f} x   {cpu:6.2f} s   peak {memory:5.0f} MiB", flush=True)
    if options.json:
        options.json.write_text(json.dumps({"cases": options.cases, "rows": results}, indent=2))


if __name__ == "__main__":
    main()
