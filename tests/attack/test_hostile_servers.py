"""MCP servers that misbehave: each run ends in time with the verdict that fits, and what they ask for is not given."""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from pathlib import Path

import pytest

from evalkit import load_case, run_case
from evalkit.features.mcp import connection, process
from evalkit.hosts.reports.trace import render_trace
from evalkit.records.settings import Settings
from evalkit.records.verdict import ERROR, FAILED, PASSED, Verdict
from evalkit.yamlfile.write import dump
from tests.attack import hostile_server
from tests.attack.forms import choose
from tests.attack.test_hostile_texts import CONTROLS

pytest.importorskip("mcp", reason="the mcp extra is not installed")

# What the server does, and what becomes of a case that calls its tool twice: the status and the first code.
SERVERS = {
    "": (PASSED, ""),
    "escapes": (PASSED, ""),
    "two answers": (PASSED, ""),
    "requests": (PASSED, ""),
    "a name twice": (ERROR, "invalid_tool"),
    "an end": (FAILED, "crashed"),
    "an error": (FAILED, "wrong_outcome"),
    "no content": (FAILED, "invalid_result"),
    "a schema in a file": (ERROR, "invalid_tool"),
    "a schema elsewhere": (ERROR, "invalid_tool"),
    "a schema in itself": (PASSED, ""),
    "pages without an end": (ERROR, "invalid_tool"),
    "another version": (ERROR, "agent_unreachable"),
    "an empty answer to a task": (FAILED, "invalid_result"),
    "a line without an end": (FAILED, "crashed"),
    "no start": (ERROR, "agent_unreachable"),
    "no end": (PASSED, ""),
    "no answer": (FAILED, "deadline"),
    "another call's answer": (FAILED, "deadline"),
}


def run(folder: Path, how: str, deadline_s: float) -> Verdict:
    (folder / "server.py").write_text(Path(hostile_server.__file__).read_text("utf-8"), "utf-8")
    path = folder / "call_001.yaml"
    server = {"command": [Path(sys.executable).name, "server.py", how], "scope": "case"}
    case = {
        "agent": {"mcp": server},
        "input": {"calls": ["echo", "echo"]},
        "settings": {"deadline_s": deadline_s},
        "expected_output": {"expected_function_calls": ["echo", "echo"]},
    }
    path.write_text(dump(case), "utf-8")
    return run_case(load_case(path, root=folder), settings=Settings(root=folder))


@pytest.mark.parametrize("how", choose([*SERVERS][1:9], [*SERVERS]))
def test_a_server_that_misbehaves_gets_the_verdict_that_fits(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "START_S", 5.0)
    verdict = run(tmp_path, how, 3.0 if SERVERS[how][1] == "deadline" else 20.0)
    reasons = [reason.code for reason in verdict.reasons]
    assert (verdict.status, "".join(reasons[:1])) == SERVERS[how], verdict.reasons
    assert not CONTROLS.search(render_trace(verdict))
    assert "forged" not in str(verdict.transcript.calls)
    assert len(verdict.transcript.warnings) == (3 if how == "requests" else 0)


def test_why_a_server_did_not_start_is_told_to_nobody_but_the_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its message holds what the server wrote to stderr. What asyncio logs when the process ends is not redacted."""
    for limit in ("START_S", "CLOSE_S", "END_S"):
        monkeypatch.setattr(connection, limit, 0.1)
    monkeypatch.setattr(process, "CLOSE_S", 0.1)
    run(tmp_path, "no start", 0.2)
    time.sleep(0.6)  # the server is ended in another thread
    futures = [each for each in gc.get_objects() if isinstance(each, asyncio.Future) and each.done()]
    assert [each for each in futures if getattr(each, "_log_traceback", False)] == []
