"""Workers of xdist share the control of a service's rate: a real server that refuses, and two processes."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from evalkit.models.providers.adaptive_pace import ServiceState

Project = Any
CASES, TURNS = 20, 3
SERVER = Path(__file__).parents[2] / "benchmarks" / "peers" / "serve_model.py"
CONFTEST = """
from pathlib import Path

def pytest_sessionfinish(session):
    worker = getattr(session.config, "workerinput", None)
    if worker:
        [pace] = Path(worker["evalkit_rendezvous"]).glob("pace-*")
        (session.config.rootpath / f"seen-{worker['workerid']}").write_bytes(pace.read_bytes())
"""
INSTRUCTION = (SERVER.parent / "desk.md").read_text("utf-8")


@pytest.fixture
def server() -> Iterator[str]:
    """A service that allows 20 requests a second, with a burst of 5."""
    command = [sys.executable, str(SERVER), "--rate=20", "--burst=5", "--latency=0.05"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        process.terminate()


def test_workers_share_the_pace_of_a_service(project: Project, server: str) -> None:
    project.write("conftest.py", CONFTEST)
    project.write("scenarios/desk.md", INSTRUCTION)
    for number in range(CASES):
        project.case(
            f"order_{number:03}",
            agent="desk.md",
            input={"message": "Are A1 and A2 there?", "mock_function_responses": {"look_up": {"state": "there"}}},
            expected_output={"response_contains": "both are there"},
        )
    result = project.run_apart(f"--evalkit-model=openai:m?base_url={server}/v1", "-n2")
    with urllib.request.urlopen(f"{server}/counts", timeout=5) as reply:
        counts = json.load(reply)
    assert result.ret == 0, result.stdout.str()
    assert counts["accepted"] == CASES * TURNS
    assert counts["refused"] <= 60
    states = [msgspec.msgpack.decode(file.read_bytes(), type=ServiceState) for file in project.root.glob("seen-gw*")]
    sent = max(state.first_number + len(state.sent) for state in states)
    assert sent == counts["accepted"] + counts["refused"], "each worker knows what all have sent"
