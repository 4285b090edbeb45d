"""Linting a project of many cases: python benchmarks/bench_lint.py [CASES] [ROUNDS].

Half of the cases declare their functions themselves, half share a suite's; beside them stand an agent in code with a
dispatch table, and its instructions. Prints the median over the rounds of a whole lint in a fresh process, start-up
included, and the time inside this process by part. The target is 1,000 cases in less than 3 s.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench_parse import PARAMETERS, case

from evalkit.cli.lint import load_lint_options
from evalkit.hosts.lint.report import check_project, gather
from evalkit.yamlfile.write import dump


def write_project(root: Path, cases: int) -> None:
    """A project whose layers agree."""
    functions = case(0)["functions"]
    (root / "pyproject.toml").write_text("[tool.evalkit]\n")
    (root / "desk.md").write_text(
        "---\n" + dump({"name": "desk", "available_functions": functions}) + "---\n"
        "Call `check_warranty(serial_number=...)` first, then `create_ticket`, then `send_email`.\n"
    )
    code = [f"def {name}({', '.join(f'{it}=None' for it in given)}): ...\n" for name, given in PARAMETERS.items()]
    table = "".join(f"    {name!r}: {name},\n" for name in PARAMETERS)
    (root / "agent.py").write_text("\n\n".join(code) + f"\n\nHANDLERS = {{\n{table}}}\n")
    shared = root / "scenarios" / "shared"
    own = root / "scenarios" / "own"
    shared.mkdir(parents=True)
    own.mkdir()
    (shared / "suite.yaml").write_text(dump({"functions": functions}))
    for number in range(cases):
        data = case(number)
        if number % 2:
            del data["functions"]
        folder = shared if number % 2 else own
        (folder / f"{data['scenario_id']}.yaml").write_text(dump(data))


def main(cases: int = 1000, rounds: int = 5) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write_project(root, cases)
        command = [sys.executable, "-c", "from evalkit.cli import main; main()", "lint"]
        spent: list[float] = []
        for _ in range(rounds):
            start = time.perf_counter()
            done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
            spent.append(time.perf_counter() - start)
            assert done.stdout == f"nothing found in 3 functions and {cases} cases\n", done.stdout + done.stderr
        print(f"evalkit lint of {cases} cases: {statistics.median(spent):.2f} s (median of {rounds})")
        start = time.perf_counter()
        gather(load_lint_options(root))
        print(f"  reading in this process: {time.perf_counter() - start:.2f} s")
        start = time.perf_counter()
        check_project(load_lint_options(root))
        print(f"  reading and judging, again: {time.perf_counter() - start:.2f} s")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
