"""evalkit, the floors, and other eval runners, on the same cases with the same agent: tables, and JSON.

    python benchmarks/bench_peers.py [start] [w1] [w2] [w3] [--rounds N] [--only REGEX] [--work DIR] [--json FILE]

check  50 cases, of which 5 must fail: a system that does not say so is left out, for nobody is fast by not checking
start  one case
w1     1,000 cases, zero-latency agent, three calls, five checks
w2     200 cases of four model turns of 250 ms, 200 at once
w3     collecting 5,000 case files

Each system has an environment of its own below DIR/envs (made when it is missing, kept for the next time; by default
DIR is evalkit-peers in the folder for temporary files); one that can't be installed here is left out, with the reason.
Cases are generated, seeded, below DIR/data. Each round runs every system once, in an order that rotates; printed are
medians, and the median of the ratios to the first system, round by round: whole processes, start-up and report
included. Only ratios within a table mean something. Nothing is sent anywhere.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import statistics
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from peers.data import write_data
from peers.environments import Environments, Peer
from peers.sampling import Sample, counts, sample, served

TOP = Path(__file__).resolve().parents[1]
PEERS = TOP / "benchmarks" / "peers"
SIZES = {"check": 50, "start": 1, "w1": 1000, "w2": 200, "w3": 5000}
BROKEN = 5  # of the cases of `check`
WAIT_S = 0.25


def on(workloads: str, command: str) -> dict[str, str]:
    return dict.fromkeys(workloads.split(), command)


RUN, QUIET_RUN = "check start w1", "{python} -m pytest -q -p no:cacheprovider"
EVALKIT = QUIET_RUN + " --evalkit --evalkit-trace=none --rootdir={data}/evalkit {data}/evalkit/scenarios"
CORE = ("pytest", "pytest-xdist", "pyyaml")
PROMPTFOO = (
    "{node}/promptfoo eval -c {data}/promptfoo.json --no-cache --no-table --no-progress-bar --no-share --no-write"
)
FLOORS = [
    Peer("bare pytest", CORE, on(RUN, f"{QUIET_RUN} {PEERS}/test_bare.py")),
    Peer("asyncio.gather", CORE, on("check w2", f"{{python}} {PEERS}/gathered.py")),
    Peer(
        "YAML plugin on CSafeLoader",
        CORE,
        on(RUN, f"{QUIET_RUN} -p yaml_plugin {{data}}/yaml")
        | on("w3", f"{QUIET_RUN} --collect-only -p yaml_plugin {{data}}/yaml"),
    ),
]
OURS = [
    Peer(
        "evalkit",
        ("-e", str(TOP)),
        on(RUN, EVALKIT) | on("w2", f"{EVALKIT} --evalkit-concurrency=200") | on("w3", f"{EVALKIT} --collect-only"),
    ),
    Peer("evalkit -n 2", ("-e", str(TOP)), on("check w1", f"{EVALKIT} -n 2")),
]
OTHERS = [
    Peer("bare pytest, xdist -n 2", CORE, on("w1 w2", f"{QUIET_RUN} -n 2 {PEERS}/test_bare.py")),
    Peer("pydantic-evals, in code", ("pydantic-evals",), on(f"{RUN} w2", f"{{python}} {PEERS}/run_pydantic_evals.py")),
    Peer(
        "pydantic-evals, YAML and report",
        ("pydantic-evals",),
        on(RUN, f"{{python}} {PEERS}/run_pydantic_evals.py"),
        {"BENCH_YAML": "{data}/pydantic_evals.yaml", "COLUMNS": "100"},
        makes="{data}/pydantic_evals.yaml",
    ),
    Peer(
        "agentevals in pytest",
        ("agentevals", "pytest"),
        on(RUN, f"{QUIET_RUN} {PEERS}/test_agentevals.py"),
    ),
    Peer("deepeval.evaluate()", ("deepeval",), on(f"{RUN} w2", f"{{python}} {PEERS}/run_deepeval.py")),
    *(
        Peer(
            f"deepeval test run{workers}",
            ("deepeval",),
            # With 1,000 cases it takes minutes: its time grows with their square.
            on("check start", f"{{bin}}/deepeval test run {PEERS}/test_deepeval.py --display failing{workers}"),
            {"PYTEST_ADDOPTS": "-Wdefault -p no:cacheprovider"},
        )
        for workers in ("", " -n 2")
    ),
    Peer("inspect-ai", ("inspect-ai",), on(f"{RUN} w2", f"{{python}} {PEERS}/run_inspect.py")),
    Peer(
        "inspect-ai, least logging",
        ("inspect-ai",),
        on("check w1 w2", f"{{python}} {PEERS}/run_inspect.py"),
        {"BENCH_LEAN": "1"},
    ),
    Peer(
        "google-adk",
        ("google-adk[eval]", "pandas", "tabulate", "rouge-score"),
        on(f"{RUN} w2", f"{{python}} {PEERS}/run_adk.py"),
    ),
    Peer(
        "Tavern, the agent behind HTTP",
        ("tavern", "pytest<9"),  # 3.7.1 imports a module of pytest's that 9 has no more
        on(RUN, f"{QUIET_RUN} {{data}}/tavern") | on("w3", f"{QUIET_RUN} --collect-only {{data}}/tavern"),
        service=f"{PEERS}/serve_desk.py",
    ),
    Peer(
        "promptfoo",
        ("promptfoo",),
        on(RUN, PROMPTFOO)
        | on("w2", f"{PROMPTFOO} -j 200")
        | on("w3", "{node}/promptfoo validate config -c {data}/promptfoo.json"),
        node=True,
    ),
]


class Bench:
    """Runs workloads, and remembers who is left out of them, and why."""

    def __init__(self, work: Path, rounds: int, timeout_s: float) -> None:
        self._environments = Environments(work / "envs")
        self._work = work
        self._rounds = rounds
        self._timeout_s = timeout_s
        self._cwd = work / "cwd"
        self._cwd.mkdir(parents=True, exist_ok=True)
        self.excluded: dict[str, str] = {}

    def install(self, peers: list[Peer]) -> None:
        for peer in peers:
            problem = self._environments.ready(peer)
            if problem is not None:
                self.excluded[peer.name] = problem

    def versions(self, peers: list[Peer]) -> dict[str, str]:
        return {peer.name: self._environments.version(peer) for peer in peers if peer.name not in self.excluded}

    def run(self, workload: str, peers: list[Peer]) -> dict[str, list[Sample]]:
        """Samples by system, of those that take part and said what they should."""
        data = self._work / "data" / workload
        write_data(data, SIZES[workload], BROKEN if workload == "check" else 0)
        taking = [peer for peer in peers if workload in peer.commands and peer.name not in self.excluded]
        found: dict[str, list[Sample]] = {peer.name: [] for peer in taking}
        for number in range(self._rounds):
            for peer in taking[number % len(taking) :] + taking[: number % len(taking)]:
                if peer.name not in self.excluded:
                    self._sample(workload, peer, data, found)
        return {name: samples for name, samples in found.items() if name not in self.excluded}

    def _sample(self, workload: str, peer: Peer, data: Path, found: dict[str, list[Sample]]) -> None:
        environment = {key: value.format(data=data) for key, value in peer.environment.items()}
        environment |= {"BENCH_CASES": str(data / "cases.json"), "BENCH_CONCURRENCY": "200"}
        if workload == "w2":
            environment["BENCH_WAIT"] = str(WAIT_S)
        command = self._environments.filled(peer.commands[workload], peer, data)
        with served(peer.service, environment) as place:
            if peer.makes and not Path(peer.makes.format(data=data)).exists():
                sample(command, environment | place, self._cwd, self._timeout_s)
            taken = sample(command, environment | place, self._cwd, self._timeout_s)
        wanted = (SIZES[workload] - BROKEN, BROKEN) if workload == "check" else (SIZES[workload], 0)
        if isinstance(taken, str):
            self.excluded[peer.name] = f"{workload}: {taken}"
        elif counts(taken.output) != wanted and not (peer.node and counts(taken.output) == (0, 0)):
            tail = " | ".join(taken.output.strip().splitlines()[-2:])[-160:]
            self.excluded[peer.name] = f"{workload}: said {counts(taken.output)} instead of {wanted}: {tail}"
        else:
            found[peer.name].append(taken)
            print(f"  {workload} {peer.name}: {taken.wall_s:.2f} s", file=sys.stderr, flush=True)


def table(found: dict[str, list[Sample]]) -> list[dict[str, Any]]:
    """A row per system: medians, and the medians of the ratios to the first one."""
    reference = next(iter(found.values()))
    rows = []
    for name, samples in found.items():
        pairs = list(zip(samples, reference, strict=False))
        rows.append(
            {
                "system": name,
                "wall_s": statistics.median(each.wall_s for each in samples),
                "cpu_s": statistics.median(each.cpu_s for each in samples),
                "peak_mib": statistics.median(each.peak_mib for each in samples),
                "x_wall": statistics.median(each.wall_s / other.wall_s for each, other in pairs),
                "x_cpu": statistics.median(each.cpu_s / other.cpu_s for each, other in pairs),
            }
        )
    return rows


def printed(workload: str, rows: list[dict[str, Any]]) -> None:
    print(f"\n{workload}, {SIZES[workload]} case{'s' * (SIZES[workload] > 1)}; ratios to '{rows[0]['system']}'")
    print(f"{'':34}{'wall s':>9}{'cpu s':>9}{'peak MiB':>10}{'x wall':>9}{'x cpu':>9}")
    for row in rows:
        print(
            f"{row['system']:34}{row['wall_s']:9.2f}{row['cpu_s']:9.2f}{row['peak_mib']:10.0f}"
            f"{row['x_wall']:9.2f}{row['x_cpu']:9.2f}"
        )


def main() -> None:
    """Install, prove that each system checks, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=", ".join(SIZES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="names of systems that match; floors and evalkit always take part")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "evalkit-peers")
    parser.add_argument("--timeout", type=float, default=600)
    parser.add_argument("--json", type=Path)
    told = parser.parse_args()
    workloads = [name for name in SIZES if name in (told.workloads or SIZES)]
    if unknown := set(told.workloads) - set(SIZES):
        parser.error(f"no such workload: {', '.join(unknown)}; there are {', '.join(SIZES)}")
    peers = [*FLOORS, *OURS, *(peer for peer in OTHERS if re.search(told.only, peer.name))]
    bench = Bench(told.work.resolve(), 1, told.timeout)
    bench.install(peers)
    bench.run("check", peers)
    result: dict[str, Any] = {
        "date": datetime.now(UTC).date().isoformat(),
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "rounds": told.rounds,
        "versions": bench.versions(peers),
    }
    measuring = Bench(told.work.resolve(), told.rounds, told.timeout)
    measuring.excluded = bench.excluded
    for workload in workloads:
        if workload != "check" and (found := measuring.run(workload, peers)):
            result[workload] = table(found)
            printed(workload, result[workload])
    result["left_out"] = measuring.excluded
    for name, why in measuring.excluded.items():
        print(f"left out: {name}: {why}")
    if told.json is not None:
        told.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
