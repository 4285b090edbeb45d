"""Clients that the agent itself imports are patched right after, by whatever finder they are found."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from evalkit.models.cassettes.http.interception import CLIENTS

CODE = """
import sys, importlib.abc, importlib.machinery

class Finder(importlib.abc.MetaPathFinder):  # as of an editable installation
    def find_spec(self, name, path, target=None):
        return importlib.machinery.PathFinder.find_spec(name, path, target) if name.split(".")[0] == {name!r} else None

import evalkit
from evalkit.runner.run_case import run_case
assert {name!r} not in sys.modules
sys.meta_path.insert(0, Finder())
{use}
case = evalkit.case_from_dict({{"input": {{"message": "hi"}}, "expected_output": {{"response_contains": "x"}}}})
print(run_case(case, agent, evalkit.Settings()).reasons[0].code)
"""
BY_REQUESTS = """
def agent(task):
    import requests
    return requests.get("http://127.0.0.1:9/").text
"""
BY_AIOHTTP = """
async def agent(task):
    import aiohttp
    async with aiohttp.ClientSession() as session, session.get("http://127.0.0.1:9/") as response:
        return await response.text()
"""


@pytest.mark.parametrize(("name", "use"), [("requests", BY_REQUESTS), ("aiohttp", BY_AIOHTTP)])
def test_a_client_that_is_imported_late_is_caught(name: str, use: str) -> None:
    pytest.importorskip(name)
    code = CODE.format(name=name, use=use)
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert result.stdout == "missing_cassette\n", result.stderr


AGENTS = """
import evalkit
URL = "http://example.test/v"

@evalkit.agent("aiohttp")
async def by_aiohttp(task):
    import aiohttp
    async with aiohttp.ClientSession() as session, session.get(URL) as response:
        return str((await response.json())["v"])

@evalkit.agent("httpx")
def by_httpx(task):
    import httpx
    return str(httpx.get(URL).json()["v"])

@evalkit.agent("requests")
async def by_requests(task):
    import asyncio
    def ask():
        import requests
        return str(requests.get(URL).json()["v"])
    return await asyncio.to_thread(ask)
"""


def test_several_threads_may_import_clients_at_once(tmp_path: Path) -> None:
    """Nothing is compiled yet, as in a fresh container: imports take long, and none waits for another in a circle."""
    (tmp_path / "scenarios").mkdir()
    (tmp_path / "conftest.py").write_text(AGENTS)
    names = ("aiohttp", "httpx", "requests")
    exchange = {
        "request": {"method": "GET", "url": "http://example.test/v"},
        "response": {"status": 200, "json": {"v": 1}},
    }
    cassettes = tmp_path / "mocks" / "cassettes" / "scenarios"
    cassettes.mkdir(parents=True)
    for name in names:
        pytest.importorskip(name)
        case = {"agent": name, "input": {"message": "go"}, "expected_output": {"response_contains": "1"}}
        (tmp_path / "scenarios" / f"{name}_001.yaml").write_text(json.dumps(case))
        (cassettes / f"{name}_001.http.yaml").write_text(json.dumps({"match": "turn", "exchanges": [exchange]}))
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "--evalkit", "-q", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        env={**environment, "PYTHONPYCACHEPREFIX": str(tmp_path / "compiled")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout
    assert "3 passed" in result.stdout


@pytest.mark.parametrize("module", sorted({*CLIENTS.values(), "evalkit.models.cassettes.http.run_traffic"}))
def test_what_patches_a_client_and_reads_its_traffic_imports_no_client_itself(module: str) -> None:
    """A client's import loads these modules: one that imported a client would be half imported itself then."""
    code = f"import sys, {module}; print([name for name in {list(CLIENTS)} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


STARTED = """
import subprocess, sys
def agent(task):
    return subprocess.run([sys.executable, "-c", "print('x')"], capture_output=True, text=True, check=True).stdout
"""


def test_a_program_that_an_agent_starts_before_any_client_was_imported_runs() -> None:
    """What serves its models is imported with the first program, and imports a client."""
    code = f"""
import sys, evalkit
from evalkit.runner.run_case import run_case
{STARTED}
assert "http.client" not in sys.modules
case = evalkit.case_from_dict({{"input": {{"message": "hi"}}, "expected_output": {{"response_contains": "x"}}}})
print(run_case(case, agent, evalkit.Settings()).status)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "passed", done.stderr
