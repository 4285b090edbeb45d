"""A record that processes share: no change is lost, and nobody waits for a process that stands still."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from msgspec import Struct

from evalkit.models.providers.adaptive_pace import FileRecord


class Counter(Struct):
    count: int = 0


ADD = """
import sys
from pathlib import Path
from tests.providers.test_shared_record import Counter
from evalkit.models.providers.adaptive_pace import FileRecord

record = FileRecord(Path(sys.argv[1]), Counter)
for _ in range(300):
    with record.change() as counter:
        counter.count += 1
"""
HOLD = """
import fcntl, os, sys, time
descriptor = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
fcntl.flock(descriptor, fcntl.LOCK_EX)
print("held", flush=True)
time.sleep(60)
"""


def count(file: Path) -> int:
    with FileRecord(file, Counter).change() as counter:
        return counter.count


def test_processes_lose_no_change(tmp_path: Path) -> None:
    file = tmp_path / "record"
    processes = [subprocess.Popen([sys.executable, "-c", ADD, str(file)]) for _ in range(3)]
    assert [process.wait(60) for process in processes] == [0, 0, 0]
    assert count(file) == 900


@pytest.mark.parametrize("data", [b"\xff", b"\x81\xa5count", b"\x81\xa5count\xa1x"])
def test_a_damaged_record_is_begun_anew(tmp_path: Path, data: bytes) -> None:
    file = tmp_path / "record"
    file.write_bytes(data)
    assert count(file) == 0


def test_a_record_that_is_gone_goes_on_in_this_process(tmp_path: Path) -> None:
    record = FileRecord(tmp_path / "gone" / "record", Counter)
    for _ in range(2):
        with record.change() as counter:
            counter.count += 1
    assert record.latest.count == 2


@pytest.mark.skipif(os.name != "posix", reason="holds the lock by fcntl")
def test_nobody_waits_for_a_process_that_stands_still_with_the_record(tmp_path: Path) -> None:
    file = tmp_path / "record"
    with subprocess.Popen([sys.executable, "-c", HOLD, str(file)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        began = time.monotonic()
        assert count(file) == 0
        assert time.monotonic() - began < 5
        process.kill()
