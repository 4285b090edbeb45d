"""Clients that the agent itself imports are patched right after, by whatever finder they are found."""

from __future__ import annotations

import subprocess
import sys

import pytest

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
