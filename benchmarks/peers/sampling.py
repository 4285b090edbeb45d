"""Running a system as a whole process, and reading what it says of the cases."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PEERS = Path(__file__).resolve().parent
QUIET = {
    "DEEPEVAL_TELEMETRY_OPT_OUT": "YES",
    "DEEPEVAL_UPDATE_WARNING_OPT_IN": "NO",
    "PROMPTFOO_DISABLE_TELEMETRY": "1",
    "PROMPTFOO_DISABLE_UPDATE": "1",
    "PROMPTFOO_DISABLE_REMOTE_GENERATION": "1",
    "PROMPTFOO_SELF_HOSTED": "1",
    "NO_COLOR": "1",
}


def around(environment: dict[str, str]) -> dict[str, str]:
    """What a system finds in its environment."""
    return {**os.environ, **QUIET, "PYTHONPATH": str(PEERS), **environment}


@contextmanager
def served(script: str, environment: dict[str, str]) -> Iterator[dict[str, str]]:
    """While inside, `script` serves; its port is BENCH_PORT. Nothing of it is measured but that one waits for it."""
    if not script:
        yield {}
        return
    server = subprocess.Popen([sys.executable, script], env=around(environment), stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        yield {"BENCH_PORT": server.stdout.readline().strip()}
    finally:
        server.kill()
        server.communicate()


@dataclass(frozen=True)
class Sample:
    """One run of a whole process: seconds by the clock and of CPU, MiB of its largest process, what it printed."""

    wall_s: float
    cpu_s: float
    peak_mib: float
    output: str


def sample(command: str, environment: dict[str, str], folder: Path, timeout_s: float) -> Sample | str:
    """Run it; the reason if it was stopped."""
    with tempfile.TemporaryFile() as out:
        started = time.perf_counter()
        process = subprocess.Popen(
            command.split(),
            cwd=folder,
            env=around(environment),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        while True:
            done, _, used = os.wait4(process.pid, os.WNOHANG)
            if done:
                break
            if time.perf_counter() - started > timeout_s:
                os.killpg(process.pid, 9)
                os.wait4(process.pid, 0)
                process.returncode = -9
                return f"stopped after {timeout_s:g} s"
            time.sleep(0.002)
        wall = time.perf_counter() - started
        process.returncode = 0
        out.seek(0)
        return Sample(wall, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, out.read().decode(errors="replace"))


_COUNTS = (
    (r"[✓✗] ([\d,]+) passed.*?([\d,]+) failed", (1, 2)),  # promptfoo
    (r"Passed: (\d+) \| Failed: (\d+)", (1, 2)),  # deepeval test run
    (r"(\d+) failed, (\d+) passed", (2, 1)),
    (r"(\d+) passed, (\d+) failed", (1, 2)),
    (r"(\d+) passed", (1, 0)),
    (r"(\d+) tests collected", (1, 0)),
)


def counts(output: str) -> tuple[int, int]:
    """How many passed (or were collected), and how many failed; (-1, -1) if it does not say."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", output)
    for pattern, (passed, failed) in _COUNTS:
        found = list(re.finditer(pattern, plain, re.DOTALL))
        if found:
            numbers = [int((found[-1][group] if group else "0").replace(",", "")) for group in (passed, failed)]
            return numbers[0], numbers[1]
    return (0, 0) if "Configuration is valid" in plain else (-1, -1)
