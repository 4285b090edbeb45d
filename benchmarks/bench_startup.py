"""What it costs to start: `pytest --evalkit` with one case, and pytest with the plugin idle, each against bare pytest.

    python benchmarks/bench_startup.py [--rounds N]

Every round runs each command once, in an order that rotates, so that drift of the machine falls on all alike. Printed
are medians over the rounds, and the median of the round-by-round ratio to bare pytest. Whole processes, wall clock.
Plugins that a developer's environment has and a user's need not have are switched off.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

AGENT = """\
import evalkit

@evalkit.agent("bench")
def bench(task):
    task.call("check", id="A1")
    return "done"
"""
CASE = {
    "agent": "bench",
    "input": {"message": "hello", "mock_function_responses": {"check": {"ok": True}}},
    "expected_output": {"expected_function_calls": [{"function_name": "check", "arguments": {"id": "A1"}}]},
}
TEST = "def test_one():\n    assert {'id': 'A1'} == {'id': 'A1'}\n"
PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:hypothesispytest", "-p", "no:anyio", "-p", "no:cacheprovider"]
COMMANDS = {
    "bare pytest, one test": [*PYTEST, "-p", "no:evalkit", "test_one.py"],
    "plugin installed, not used": [*PYTEST, "test_one.py"],
    "pytest --evalkit, one case": [*PYTEST, "--evalkit"],
    "pytest --evalkit -n 2, one case": [*PYTEST, "--evalkit", "-n", "2"],
    "import evalkit": [sys.executable, "-c", "import evalkit"],
    "empty interpreter": [sys.executable, "-c", ""],
}
REFERENCE = next(iter(COMMANDS))


def project(folder: Path) -> None:
    (folder / "scenarios").mkdir()
    (folder / "scenarios" / "conftest.py").write_text(AGENT)
    (folder / "scenarios" / "one_001.yaml").write_text(json.dumps(CASE))
    (folder / "test_one.py").write_text(TEST)


def seconds(command: list[str], folder: Path) -> float:
    # Byte code is cached, as it is for a user; a developer's environment may have switched that off.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    started = time.perf_counter()
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment, check=False)
    if ended.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{ended.stdout}{ended.stderr}")
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    measured: dict[str, list[float]] = {name: [] for name in COMMANDS}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        project(folder)
        for command in COMMANDS.values():
            seconds(command, folder)  # warm the caches of files and byte code
        names = list(COMMANDS)
        for turn in range(rounds):
            for name in names[turn % len(names) :] + names[: turn % len(names)]:
                measured[name].append(seconds(COMMANDS[name], folder))
    for name, times in measured.items():
        ratio = statistics.median(mine / bare for mine, bare in zip(times, measured[REFERENCE], strict=True))
        print(f"{name:<34} {1000 * statistics.median(times):7.0f} ms  {ratio:5.2f} x")


if __name__ == "__main__":
    main()
