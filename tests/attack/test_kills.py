"""Runs that are killed at any moment and gone on with: no verdict is lost, none comes twice, none changes."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from evalkit.errors import UsageError
from evalkit.hosts.reports.run_file import find_worker_journals, load_run
from evalkit.records.verdict import Verdict
from tests.attack.forms import choose

Project = Any
CASES = 8
AGENT = """
import asyncio, os, pathlib, time, uuid
import evalkit

def begin(task):
    with open("started.txt", "a") as file:
        file.write(f"{task.case_id} {os.getpid()}\\n")

@evalkit.agent("quick")
def quick(task):
    begin(task)
    time.sleep(0.01)
    return f"{task.message} {uuid.uuid4()}"

@evalkit.agent("waits")
async def waits(task):
    begin(task)
    await asyncio.sleep(0.02 * (int(task.message[-1]) + 1))
    return f"{task.message} {uuid.uuid4()}"
"""


def write(project: Project) -> dict[str, str]:
    """Return the status that each case has in a run that is left alone."""
    project.write("conftest.py", AGENT)
    statuses = {}
    for number in range(CASES):
        name = f"a_{number:03}"
        statuses[name] = "failed" if number % 3 == 0 else "passed"
        project.case(
            name,
            agent="waits" if number % 2 else "quick",
            input={"message": f"case {number % 4}"},
            expected_output={"response_contains": "nothing such" if number % 3 == 0 else "case"},
        )
    return statuses


def start(project: Project, *arguments: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "pytest", "--evalkit", "-q", "--evalkit-concurrency=4"]
    with (project.root / "output.txt").open("ab") as output:
        return subprocess.Popen([*command, *arguments], cwd=project.root, stdout=output, stderr=output)


def list_starts(project: Project) -> list[tuple[str, int]]:
    path = project.root / "started.txt"
    pairs = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
    return [(case_id, int(pid)) for case_id, pid in pairs]


def read_landed(project: Project) -> dict[str, Verdict]:
    """Return the verdicts that are on disk, in whatever file a killed session has left."""
    folder = project.root / ".evalkit"
    journal = folder / "last-run.journal.jsonl"
    landed: dict[str, Verdict] = {}
    for path in (journal, folder / "last-run.json"):
        with suppress(UsageError):
            landed |= {verdict.case_id: verdict for verdict in load_run(path).verdicts}
    for path in find_worker_journals(journal):
        head = b'{"evalkit_journal": 1}\n'
        copy = Path(project.root / "copy.jsonl")
        copy.write_bytes(head + path.read_bytes())
        landed |= {verdict.case_id: verdict for verdict in load_run(copy).verdicts}
    return {case_id: verdict for case_id, verdict in landed.items() if verdict.status in ("passed", "failed")}


def kill(project: Project, process: subprocess.Popen[bytes], victim: str, number: int, rng: random.Random) -> None:
    """Send the signal after as many starts of agents as chance says, and a moment; wait for the end.

    In the long form it may come before the first agent starts, and after the last one has ended.
    """
    before = len(list_starts(project))
    starts, moment = rng.randint(choose(1, 0), CASES), rng.random() * choose(0.1, 0.3)
    deadline = time.monotonic() + 30
    while len(list_starts(project)) - before < starts and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.002)
    time.sleep(moment)
    pids = [pid for _, pid in list_starts(project)[before:] if pid != process.pid]
    with suppress(ProcessLookupError):
        os.kill(rng.choice(pids) if victim == "worker" and pids else process.pid, number)
    try:
        process.wait(30)
    finally:
        process.kill()
    if victim == "controller":
        end = time.monotonic() + 10
        while any(is_alive(pid) for pid in pids) and time.monotonic() < end:  # workers see that they are alone
            time.sleep(0.02)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


MODES = [
    ("alone", signal.SIGKILL, ()),
    ("alone", signal.SIGTERM, ()),
    ("worker", signal.SIGKILL, ("-n", "2")),
    ("controller", signal.SIGKILL, ("-n", "2")),
    ("alone", signal.SIGINT, ()),
    ("worker", signal.SIGTERM, ("-n", "2")),
    ("controller", signal.SIGTERM, ("-n", "2")),
    ("controller", signal.SIGINT, ("-n", "2")),
][: choose(4, 8)]


@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize(
    ("victim", "number", "workers"), MODES, ids=[f"{victim}-{number.name}" for victim, number, _ in MODES]
)
@pytest.mark.parametrize("seed", range(choose(1, 50)))
def test_a_killed_run_goes_on_to_the_same_end(
    project: Project, victim: str, number: signal.Signals, workers: tuple[str, ...], seed: int
) -> None:
    expected = write(project)
    rng = random.Random(f"{seed} {victim} {number}")
    resume: tuple[str, ...] = ()
    landed: dict[str, Verdict] = {}
    for _ in range(rng.randint(1, choose(1, 2))):
        kill(project, start(project, *workers, *resume), victim, number, rng)
        now = read_landed(project)
        lost = {case_id for case_id, verdict in landed.items() if now.get(case_id) != verdict}
        assert lost == set()
        landed = now
        resume = ("--evalkit-resume", "--evalkit-retry-errors")
    (project.root / "started.txt").unlink(missing_ok=True)
    process = start(project, *workers, *resume)
    assert process.wait(120) == 1, (project.root / "output.txt").read_text()[-3000:]
    assert project.statuses() == expected
    assert len(project.run_file.verdicts) == CASES
    final = {verdict.case_id: verdict for verdict in project.run_file.verdicts}
    changed = [case_id for case_id, verdict in landed.items() if final[case_id].transcript != verdict.transcript]
    assert changed == []
    starts = [case_id for case_id, _ in list_starts(project)]
    assert sorted(starts) == sorted({f"scenarios/{name}.yaml" for name in expected} - set(landed))
    assert list((project.root / ".evalkit").glob("*.jsonl")) == []
