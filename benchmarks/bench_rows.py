"""What a file of many rows takes: CPU and memory of collecting and of running it, against a parametrised test.

    python benchmarks/bench_rows.py [--rows N] [--run N] [--profile FILE]

collect        pytest --evalkit --collect-only over a case with N rows in a JSON Lines file
run            the same file with fewer rows, run: one call each, its arguments out of the row, journal and run file
bare collect   one parametrised test over the same rows, read by the standard library
bare run       the same, with the same agent and an assert

CPU is user and system time of whole processes, which other work on the machine disturbs less than the clock.
`--profile` runs the rows under cProfile, which slows them down, and writes its statistics.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CASE = """\
from: rows.jsonl
input:
  message: "Refund {{ row.order }}"
  mock_function_responses:
    find_order: {total: "{{ row.total }}", currency: eur}
    issue_refund: {refund_id: "R-{{ row.order }}"}
expected_output:
  expected_function_calls:
    - {function_name: find_order, arguments: {order: "{{ row.order }}"}}
    - {function_name: issue_refund, arguments: {order: "{{ row.order }}", amount: "{{ row.total }}"}}
"""
SUITE = """\
agent: desk
functions:
  find_order:
    description: Look an order up.
    parameters: {type: object, properties: {order: {type: string, description: its number}}, required: [order]}
  issue_refund:
    description: Pay money of an order back.
    parameters:
      type: object
      properties:
        order: {type: string, description: its number}
        amount: {type: number, exclusiveMinimum: -1, description: in euros}
        reason: {type: string, enum: [broken, late, other], description: what the customer says}
      required: [order, amount]
"""
AGENT = """\
import evalkit

@evalkit.agent("desk")
def desk(task):
    order = task.message.split()[1]
    found = task.call("find_order", order=order)
    task.call("issue_refund", order=order, amount=found["total"])
    return "done"
"""
BARE = """\
import json
import pathlib
import pytest

ROWS = [json.loads(line) for line in pathlib.Path(__file__).with_name("rows.jsonl").read_text().splitlines()]

@pytest.mark.parametrize("row", ROWS, ids=[row["id"] for row in ROWS])
def test_row(row):
    calls = [("find_order", {"order": row["order"]}), ("issue_refund", {"order": row["order"], "amount": row["total"]})]
    assert [name for name, _ in calls] == ["find_order", "issue_refund"]
    assert calls[1][1] == {"order": row["order"], "amount": row["total"]}
"""
PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:hypothesispytest"]
EVALKIT = [*PYTEST, "--evalkit"]


def write_project(folder: Path, rows: int) -> None:
    scenarios = folder / "scenarios"
    scenarios.mkdir(parents=True)
    (folder / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    (scenarios / "conftest.py").write_text(AGENT)
    (scenarios / "suite.yaml").write_text(SUITE)
    (scenarios / "refund_001.yaml").write_text(CASE)
    (folder / "test_bare.py").write_text(BARE)
    for path in (scenarios / "rows.jsonl", folder / "rows.jsonl"):
        with path.open("w") as file:
            for number in range(rows):
                file.write(json.dumps({"id": f"r{number}", "order": f"A-{number}", "total": number % 97}) + "\n")


def measure(command: list[str], folder: Path) -> tuple[float, float, float]:
    """CPU seconds, seconds by the clock and the peak in MiB of a command, which must succeed."""
    started = time.perf_counter()
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command)}: status {status}")
    return usage.ru_utime + usage.ru_stime, time.perf_counter() - started, usage.ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--run", type=int, default=20_000)
    parser.add_argument("--profile")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        many, few = Path(temporary) / "many", Path(temporary) / "few"
        write_project(many, arguments.rows)
        write_project(few, arguments.run)
        if arguments.profile:
            command = [sys.executable, "-m", "cProfile", "-o", os.path.abspath(arguments.profile), *EVALKIT[1:]]
            measure(command, few)
            return
        for name, rows, command, folder in (
            ("collect", arguments.rows, [*EVALKIT, "--collect-only"], many),
            ("bare collect", arguments.rows, [*PYTEST, "--collect-only", "test_bare.py"], many),
            ("run", arguments.run, EVALKIT, few),
            ("bare run", arguments.run, [*PYTEST, "test_bare.py"], few),
        ):
            cpu, wall, peak = measure(command, folder)
            each = f"{1e6 * cpu / rows:6.0f} µs a row"
            print(f"{name:<13} {rows:>7,} rows  {cpu:6.1f} s CPU  {each}  {wall:6.1f} s  {peak:5.0f} MiB", flush=True)


if __name__ == "__main__":
    main()
