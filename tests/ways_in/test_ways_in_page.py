"""docs/ways-in.md shows the files of scenarios/ways_in as they are; each way passes, and fails on a wrong call."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import evalkit
from evalkit.bounds import Bounds
from evalkit.features.programs.protocol import REPLY_KEYS
from evalkit.records.settings import Settings
from evalkit.records.transcript import USAGE_KEYS
from evalkit.runner.run_case import run_case
from evalkit.spec.load import case_from_dict, load_case
from evalkit.yamlfile.parse import load

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "scenarios" / "ways_in"
PAGE = (ROOT / "docs" / "ways-in.md").read_text(encoding="utf-8")
BLOCK = r"```\w+\n(.*?)```"

NO_NODE = shutil.which("node") is None and "CI" not in os.environ  # in CI the example must run
needs = {
    "node": pytest.mark.skipif(NO_NODE, reason="node is not installed"),
    "mcp": pytest.mark.skipif(importlib.util.find_spec("mcp") is None, reason="the mcp extra is not installed"),
}
CASES = [pytest.param(file.stem, marks=needs.get(file.stem[:-4], ())) for file in sorted(FOLDER.glob("*_00?.yaml"))]
PROGRAMS = ["desk.py", "desk.mjs", "mcp_desk.py", "service.py"]


@pytest.mark.parametrize(("name", "content"), re.findall(rf"<!-- file: (\S+) -->\n{BLOCK}", PAGE, re.DOTALL))
def test_the_page_shows_a_file_as_it_is(name: str, content: str) -> None:
    assert content == (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize(("name", "content"), re.findall(rf"<!-- part of: (\S+) -->\n{BLOCK}", PAGE, re.DOTALL))
def test_the_page_shows_a_part_of_a_file_as_it_is(name: str, content: str) -> None:
    assert content in (ROOT / name).read_text(encoding="utf-8")


def lines_of_code(source: str) -> int:
    """Lines that say something: without empty lines, comments and imports."""
    nothing = ("", "#", "//", "import ", "from ", '"""')
    return sum(not line.strip().startswith(nothing[1:]) for line in source.splitlines() if line.strip())


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_takes_ten_lines_or_fewer(name: str) -> None:
    assert lines_of_code((FOLDER / name).read_text(encoding="utf-8")) <= 10


def test_an_agent_in_python_takes_ten_lines_or_fewer() -> None:
    agents = re.split(r"\n\n\n", (FOLDER / "desks.py").read_text(encoding="utf-8"))[1:]

    assert len(agents) == 3
    assert all(lines_of_code(agent) <= 10 for agent in agents)


@pytest.mark.parametrize("stem", CASES)
def test_each_way_in_passes(stem: str) -> None:
    verdict = run_case(load_case(FOLDER / f"{stem}.yaml", root=ROOT), settings=Settings(root=ROOT))

    assert (verdict.status, verdict.reasons) == ("passed", ())
    assert [call.name for call in verdict.transcript.calls] == ["check_warranty", "send_reply"]


@pytest.mark.parametrize("stem", CASES)
def test_each_way_in_fails_on_a_wrong_call(stem: str) -> None:
    data = case_data(stem)
    data["input"]["email"]["body"] = "And what about SN777?"

    verdict = run_case(case_from_dict(data, FOLDER / f"{stem}.yaml", root=ROOT), settings=Settings(root=ROOT))

    assert verdict.status == "failed"
    assert verdict.reasons[0].code == "wrong_argument"
    assert re.fullmatch(
        r'call 1, check_warranty: arguments\.serial_number: expected "SN\d+", got "SN777"', verdict.reasons[0].message
    )


def case_data(stem: str) -> dict[str, Any]:
    data: dict[str, Any] = load((FOLDER / f"{stem}.yaml").read_bytes(), stem)
    return data


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """Where the page's service listens."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        number = int(free.getsockname()[1])
    server = subprocess.Popen(
        [sys.executable, "-m", "scenarios.ways_in.service", str(number)], cwd=ROOT, stderr=subprocess.DEVNULL
    )
    try:
        until = time.monotonic() + 20
        while not listens(number) and time.monotonic() < until:
            time.sleep(0.02)
        yield number
    finally:
        server.kill()
        server.wait()


def listens(number: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", number), timeout=1).close()
    except OSError:
        return False
    return True


@pytest.mark.parametrize(("serial_number", "status"), [("SN12345", "passed"), ("SN777", "failed")])
def test_the_service_of_the_page_is_judged_as_well(port: int, serial_number: str, status: str) -> None:
    (shown,) = re.findall(r"```yaml\n(agent: \{url: .*?)```", PAGE, re.DOTALL)
    data = {**case_data("callable_001"), **load(shown.replace("8000", str(port)), "page")}
    data["input"]["email"]["body"] = f"And what about {serial_number}?"

    verdict = run_case(case_from_dict(data, FOLDER / "service_001.yaml", root=ROOT), settings=Settings(root=ROOT))

    assert verdict.status == status, verdict.reasons


@pytest.mark.parametrize("expected", ["SN12345", "SN777"])
def test_the_mcp_client_of_the_page_is_judged_as_well(expected: str) -> None:
    mcp = pytest.importorskip("mcp", reason="the mcp extra is not installed")
    (shown,) = re.findall(r"```python\n@evalkit.agent\(\"mcp_desk\"\)\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, Any] = {"evalkit": evalkit, "Client": mcp.Client}
    exec(shown, names)
    data = case_data("callable_001")
    call = {"function_name": "check_warranty", "arguments": {"serial_number": expected}}
    data["expected_output"] = {"expected_function_calls": [call, "send_reply"]}

    verdict = run_case(case_from_dict(data, FOLDER / "mcp_001.yaml", root=ROOT), names["mcp_desk"])

    assert verdict.status == ("passed" if expected == "SN12345" else "failed"), verdict.reasons


def test_the_page_names_what_the_protocol_has() -> None:
    protocol = PAGE.split("## The protocol")[1]
    answers = protocol.split("### What the agent answers")[1].split("###")[0]

    assert tuple(re.findall(r"^\| `(\w+)` ", answers, re.MULTILINE)) == REPLY_KEYS
    assert set(re.findall(r'"(\w+_tokens)"', answers)) == set(USAGE_KEYS)
    assert f"more than {Bounds().agent_reply_bytes // 1_000_000} MB" in protocol
