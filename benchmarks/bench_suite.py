"""evalkit against the floors that pytest and asyncio set, on workloads that this script makes: ratios in one run.

    python benchmarks/bench_suite.py [--rounds N] [--only ROW ...] [--json FILE]

start-up  one case                                      against one hand-written test      CPU
idle      the plugin installed, not used                against pytest without it          CPU
W1        1,000 cases, three calls each                 against a parametrised test        CPU
W2        200 cases that wait 4 x 250 ms, 200 at once   against asyncio.gather of them     wall clock
W2b       the same with a blocking agent in threads     against asyncio.gather of them     wall clock
W3        collecting 5,000 case files                   against a plugin on CSafeLoader    CPU
memory    5,000 cases                                   against a parametrised test        peak of the process
reports   5,000 cases: traces, journal, run file        against none of them               CPU
keeping   5,000 cases: journal and run file             against none of them               CPU
html      1,000 cases and an HTML report of them        against the same run without       CPU

All sides run one scripted agent, agent.py, on the same cases: the hand-written tests read them from one JSON file and
assert what the case files expect. Whole processes, in turn: each round runs both commands once, and printed is the
median of the rounds' ratios, and the least that either side took in any round. CPU is user and system time, which other
work on the machine disturbs less than it does the clock. Byte code is cached, as it is for a user, and each side has a
pytest cache of its own. Run it in an environment without other plugins of pytest: those that developers have are
switched off here, but still take time. A run can't be told to keep nothing: the plugin keeping_nothing.py, which is
written beside the cases, makes verdicts pass without a line of JSON, a search for secrets, a journal or a run file.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from workload import project

PACKAGES = ("pytest-evalkit", "pytest", "pytest-xdist", "pyyaml")
PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:hypothesispytest", "-p", "no:anyio"]
BARE_CACHE = ["-p", "no:evalkit", "-o", "cache_dir=.cache_bare"]


NOTHING: Mapping[str, str] = MappingProxyType({})


class Cost(NamedTuple):
    """Of one process: seconds of CPU, seconds of wall clock, peak memory in KiB (bytes on macOS)."""

    cpu: float
    wall: float
    memory: float


class Row(NamedTuple):
    measure: str
    cases: int
    mine: list[str]
    other: list[str]
    environment: Mapping[str, str] = NOTHING


BARE_COMMAND = [*PYTEST, *BARE_CACHE, "test_bare.py"]
RUN = [*PYTEST, "--evalkit"]
FANNED_OUT = [*RUN, "--evalkit-concurrency", "200"]
GATHERED = [sys.executable, "gather.py"]
KEEPING_NOTHING = [*RUN, "--evalkit-trace", "none", "-p", "keeping_nothing"]
WAIT = {"BENCH_WAIT": "0.25"}
ROWS = {
    "start-up": Row("cpu", 1, RUN, BARE_COMMAND),
    "idle": Row("cpu", 1, [*PYTEST, "test_bare.py"], BARE_COMMAND),
    "W1": Row("cpu", 1_000, RUN, BARE_COMMAND),
    "W2": Row("wall", 200, FANNED_OUT, GATHERED, WAIT),
    "W2b": Row("wall", 200, FANNED_OUT, GATHERED, {**WAIT, "BENCH_BLOCKING": "1"}),
    "W3": Row("cpu", 5_000, [*RUN, "--collect-only"], [*PYTEST, *BARE_CACHE, "--collect-only", "yamlmin"]),
    "memory": Row("memory", 5_000, RUN, BARE_COMMAND),
    "reports": Row("cpu", 5_000, [*RUN, "--evalkit-trace", "all"], KEEPING_NOTHING),
    "keeping": Row("cpu", 5_000, [*RUN, "--evalkit-trace", "none"], KEEPING_NOTHING),
    "html": Row("cpu", 1_000, [*RUN, "--evalkit-html", "report.html"], RUN),
}


def cost(command: list[str], folder: Path, more: Mapping[str, str] = NOTHING) -> Cost:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment |= {"BENCH_CASES": str(folder / "cases.json"), **more}
    log = folder / "output.txt"
    started = time.perf_counter()
    process = os.fork()
    if not process:
        os.chdir(folder)
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.execve(command[0], command, environment)
    _, status, used = os.wait4(process, 0)
    wall = time.perf_counter() - started
    if status:
        raise SystemExit(f"{' '.join(command)} failed:\n{log.read_text()[-4000:]}")
    return Cost(used.ru_utime + used.ru_stime, wall, used.ru_maxrss)


def installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def measured(row: Row, rounds: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        project(folder, row.cases)
        pairs = []
        for turn in range(rounds + 1):
            mine, other = cost(row.mine, folder, row.environment), cost(row.other, folder, row.environment)
            if turn:  # the first round warms the caches of files and byte code
                pairs.append((getattr(mine, row.measure), getattr(other, row.measure)))
    ratio = statistics.median(mine / other for mine, other in pairs)
    return {
        "ratio": round(ratio, 2),
        "evalkit": statistics.median(mine for mine, _ in pairs),
        "other": statistics.median(other for _, other in pairs),
        "least": min(mine for mine, _ in pairs),
        "other_least": min(other for _, other in pairs),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", nargs="+", choices=ROWS, default=list(ROWS))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    packages = {name: found for name in PACKAGES if (found := installed(name)) is not None}
    machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()}"
    print(f"{datetime.now(UTC):%Y-%m-%d}:", ", ".join(f"{name} {number}" for name, number in packages.items()))
    print(f"{machine}; medians of {options.rounds} rounds", flush=True)
    results = {}
    for name in options.only:
        results[name] = found = measured(ROWS[name], options.rounds)
        scale, unit = (1024, "MiB") if ROWS[name].measure == "memory" else (1, "s")
        amounts = f"{found['evalkit'] / scale:.3f} {unit} against {found['other'] / scale:.3f} {unit}"
        amounts += f"; at least {found['least'] / scale:.3f} against {found['other_least'] / scale:.3f}"
        print(f"{name:<9} {found['ratio']:5.2f} x   {ROWS[name].measure}: {amounts}", flush=True)
    if options.json:
        options.json.write_text(json.dumps({"packages": packages, "machine": machine, "rows": results}, indent=2))


if __name__ == "__main__":
    main()
