"""The benchmark against other systems: its cases are checked by evalkit and by hand, and broken ones fail."""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

PEERS = Path(__file__).parents[2] / "benchmarks" / "peers"


def counted(command: list[str], cases: Path) -> tuple[str, ...]:
    """How many failed and passed, as the command's last line says."""
    environment = {**os.environ, "PYTHONPATH": str(PEERS), "BENCH_CASES": str(cases)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=cases.parent)
    match = re.search(r"(\d+) failed, (\d+) passed|(\d+) passed, (\d+) failed", done.stdout)
    assert match is not None, done.stdout + done.stderr
    return match.group(1, 2) if match[1] else match.group(4, 3)


def test_evalkit_and_the_floors_find_the_same_broken_cases(tmp_path: Path) -> None:
    data: dict[str, Any] = runpy.run_path(str(PEERS / "data.py"))
    data["write_data"](tmp_path / "d", 6, 2)
    cases = tmp_path / "d" / "cases.json"
    assert len(json.loads(cases.read_text())) == 6
    pytest = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:hypothesispytest"]
    folder = str(tmp_path / "d" / "evalkit")
    commands = [
        [*pytest, "--evalkit", f"--rootdir={folder}", f"{folder}/scenarios"],
        [*pytest, str(PEERS / "test_bare.py")],
        [*pytest, "-p", "yaml_plugin", str(tmp_path / "d" / "yaml")],
        [sys.executable, str(PEERS / "gathered.py")],
    ]
    assert [counted(command, cases) for command in commands] == [("2", "4")] * 4
