"""evalkit against bare pytest, on workloads that this script makes: ratios in one run, on the machine at hand.

    python benchmarks/bench_suite.py [--rounds N] [--only ROW ...] [--json FILE]

start-up  one case                                      against one plain test          CPU
W1        1,000 cases, three calls each                 against a parametrised test     CPU
W2        200 cases that wait 4 x 250 ms, 200 at once   against asyncio.gather of it    wall clock
W3        collecting 5,000 case files                   against a plugin on CSafeLoader CPU
memory    5,000 cases                                   against a parametrised test     peak of the process

Whole processes, in turn: each round runs both commands once, and printed is the median of the rounds' ratios. CPU is
user and system time, which other work on the machine disturbs less than it does the clock. Byte code is cached, as it
is for a user. Plugins that a developer's environment has and a user's need not have are switched off.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import yaml

AGENT = """\
import asyncio, json, os
import evalkit

WAIT = float(os.environ.get("BENCH_WAIT", "0"))

@evalkit.agent("bench")
async def bench(task):
    for name, arguments in json.loads(task.message.splitlines()[-1]):
        if WAIT:
            await asyncio.sleep(WAIT)
        await task.acall(name, **arguments)
    if WAIT:
        await asyncio.sleep(WAIT)
    return "done"
"""
BARE = """\
import json, os
import pytest

CASES = json.load(open(os.environ["BENCH_CASES"]))

@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_case(case):
    calls = [tuple(call) for call in json.loads(case["input"]["message"].splitlines()[-1])]
    replies = [case["input"]["mock_function_responses"][name] for name, _ in calls]
    assert len(replies) == len(calls)
    for expected, (name, arguments) in zip(case["expected_output"]["expected_function_calls"], calls, strict=True):
        assert name == expected["function_name"]
        if "arguments" in expected:
            assert arguments == expected["arguments"]
        for key, value in expected.get("arguments_contain", {}).items():
            assert value in arguments[key]
        for text in expected.get("body_contains", ()):
            assert text in arguments["body"]
"""
YAML_PLUGIN = """\
import pytest, yaml

class Item(pytest.Item):
    def __init__(self, *, case, **kwargs):
        super().__init__(**kwargs)
        self.case = case

    def runtest(self):
        pass

class File(pytest.File):
    def collect(self):
        with self.path.open("rb") as file:
            yield Item.from_parent(self, name=self.path.stem, case=yaml.load(file, yaml.CSafeLoader))

def pytest_collect_file(file_path, parent):
    if file_path.suffix == ".yaml":
        return File.from_parent(parent, path=file_path)
"""
GATHER = "import asyncio\nasync def one():\n    for _ in range(4): await asyncio.sleep(0.25)\n"
GATHER += "async def main(): await asyncio.gather(*(one() for _ in range(200)))\nasyncio.run(main())\n"
WORDS = ("drill", "pump", "kettle", "lamp", "battery", "charger", "never", "starts", "leaks", "since", "the", "reset")
PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:hypothesispytest", "-p", "no:anyio", "-p", "no:cacheprovider"]


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
    wait: str = "0"


BARE_COMMAND = [*PYTEST, "-p", "no:evalkit", "test_bare.py"]
RUN = [*PYTEST, "--evalkit"]
ROWS = {
    "start-up": Row("cpu", 1, RUN, BARE_COMMAND),
    "W1": Row("cpu", 1_000, RUN, BARE_COMMAND),
    "W2": Row("wall", 200, [*RUN, "--evalkit-concurrency", "200"], [sys.executable, "-c", GATHER], "0.25"),
    "W3": Row("cpu", 5_000, [*RUN, "--collect-only"], [*PYTEST, "-p", "no:evalkit", "--collect-only", "yamlmin"]),
    "memory": Row("memory", 5_000, RUN, BARE_COMMAND),
}


def case(number: int) -> dict[str, Any]:
    """One case of about 2 kB as YAML; the same for the same number."""
    rng = random.Random(number)
    serial = f"SN-{rng.randrange(10**8):08}"
    prose = " ".join(rng.choices(WORDS, k=90))
    body = f"Ticket T-{number} for {serial}: {' '.join(rng.choices(WORDS, k=30))}"
    calls = [
        ["look_up", {"serial": serial, "bought": f"20{rng.randrange(10, 26)}-0{rng.randrange(1, 10)}-15"}],
        ["open_ticket", {"serial": serial, "priority": rng.choice(["low", "high"]), "summary": prose[:60]}],
        ["send_mail", {"to": f"customer{number}@example.com", "subject": "Your ticket", "body": body}],
    ]
    return {
        "description": f"case {number}",
        "agent": "bench",
        "functions": {
            name: {
                "description": f"The function {name} of the service desk.",
                "parameters": {
                    "type": "object",
                    "properties": {key: {"type": "string", "description": f"the {key}"} for key in arguments},
                    "required": list(arguments),
                },
            }
            for name, arguments in calls
        },
        "input": {
            "message": f"{prose}\n{json.dumps(calls)}",
            "mock_function_responses": {name: {"status": "ok", "number": number} for name, _ in calls},
        },
        "expected_output": {
            "expected_function_calls": [
                {"function_name": "look_up", "arguments": calls[0][1]},
                {"function_name": "open_ticket", "arguments_contain": {"serial": serial}},
                {"function_name": "send_mail", "body_contains": [f"T-{number}"]},
            ],
        },
    }


def project(folder: Path, count: int) -> None:
    """The same cases three times: for evalkit, as JSON for the plain test, and beside the 30-line plugin."""
    cases = [case(number) for number in range(count)]
    for name, conftest in (("scenarios", AGENT), ("yamlmin", YAML_PLUGIN)):
        (folder / name).mkdir()
        (folder / name / "conftest.py").write_text(conftest)
    for number, data in enumerate(cases):
        text = yaml.dump(data, Dumper=yaml.CSafeDumper, sort_keys=False)
        for name in ("scenarios", "yamlmin"):
            (folder / name / f"case_{number:05}.yaml").write_text(text)
    (folder / "cases.json").write_text(json.dumps([{"id": f"case_{n:05}", **data} for n, data in enumerate(cases)]))
    (folder / "test_bare.py").write_text(BARE)
    (folder / "pytest.ini").write_text("[pytest]\n")


def cost(command: list[str], folder: Path, wait: str) -> Cost:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment |= {"BENCH_CASES": str(folder / "cases.json"), "BENCH_WAIT": wait}
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


def measured(row: Row, rounds: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        project(folder, row.cases)
        pairs = []
        for turn in range(rounds + 1):
            mine, other = cost(row.mine, folder, row.wait), cost(row.other, folder, row.wait)
            if turn:  # the first round warms the caches of files and byte code
                pairs.append((getattr(mine, row.measure), getattr(other, row.measure)))
    ratio = statistics.median(mine / other for mine, other in pairs)
    return {
        "ratio": round(ratio, 2),
        "evalkit": statistics.median(mine for mine, _ in pairs),
        "other": statistics.median(other for _, other in pairs),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=ROWS, default=list(ROWS))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    packages = {name: version(name) for name in ("pytest-evalkit", "pytest", "pyyaml")}
    machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()}"
    print(", ".join(f"{name} {number}" for name, number in packages.items()), "on", machine, flush=True)
    results = {}
    for name in options.only:
        results[name] = found = measured(ROWS[name], options.rounds)
        scale, unit = (1024, "MiB") if ROWS[name].measure == "memory" else (1, "s")
        amounts = f"{found['evalkit'] / scale:.2f} {unit} against {found['other'] / scale:.2f} {unit}"
        print(f"{name:<9} {found['ratio']:5.2f} x   {ROWS[name].measure}: {amounts}", flush=True)
    if options.json:
        options.json.write_text(json.dumps({"packages": packages, "machine": machine, "rows": results}, indent=2))


if __name__ == "__main__":
    main()
