"""The workload of bench_suite.py: one scripted agent, its cases, and what evalkit is held against, in its own forms.

Seeded: the same case for the same number, everywhere.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import yaml

AGENT = """\
import asyncio, os, re, time

WAIT = float(os.environ.get("BENCH_WAIT", "0"))
SERIAL, SENDER = re.compile(r"SN-[0-9]{8}"), re.compile(r"From: (\\S+)")
DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")

def turn(message, results):
    serial = SERIAL.search(message)[0]
    if not results:
        return "look_up", {"serial": serial, "bought": DATE.search(message)[0]}
    if len(results) == 1:
        priority = "high" if results[0]["covered"] else "low"
        return "open_ticket", {"serial": serial, "priority": priority, "summary": f"Repair of {serial}"}
    if len(results) == 2:
        body = f"Your ticket for {serial} is {results[1]['ticket']}."
        return "send_mail", {"to": SENDER.search(message)[1], "subject": "Your ticket", "body": body}
    return None, "done"

def run(message, call):
    results = []
    while True:
        if WAIT:
            time.sleep(WAIT)
        name, said = turn(message, results)
        if name is None:
            return said
        results.append(call(name, said))

async def arun(message, call):
    results = []
    while True:
        if WAIT:
            await asyncio.sleep(WAIT)
        name, said = turn(message, results)
        if name is None:
            return said
        results.append(await call(name, said))
"""
CONFTEST = """\
import os, agent, evalkit

if os.environ.get("BENCH_BLOCKING"):
    @evalkit.agent("bench", threads=200)
    def bench(task):
        return agent.run(task.message, lambda name, arguments: task.call(name, **arguments))
else:
    @evalkit.agent("bench")
    async def bench(task):
        return await agent.arun(task.message, lambda name, arguments: task.acall(name, **arguments))
"""
BARE = """\
import json, os
import agent
import pytest

CASES = json.load(open(os.environ["BENCH_CASES"]))

@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_case(case):
    calls = []
    def call(name, arguments):
        calls.append((name, arguments))
        return case["input"]["mock_function_responses"][name]
    agent.run(case["input"]["message"], call)
    wanted = case["expected_output"]["expected_function_calls"]
    assert [name for name, _ in calls] == [call["function_name"] for call in wanted]
    arguments = dict(calls)
    assert arguments["look_up"] == wanted[0]["arguments"]
    partial = wanted[1]["arguments_contain"]
    assert {key: arguments["open_ticket"].get(key) for key in partial} == partial
    for text in wanted[2]["body_contains"]:
        assert text in arguments["send_mail"]["body"]
"""
YAML_PLUGIN = """\
import pytest, yaml

class Item(pytest.Item):
    def __init__(self, *, case, **kwargs):
        super().__init__(**kwargs)
        self.case = case

    def runtest(self):
        pass

class File(pytest.File):
    def collect(self):
        with self.path.open("rb") as file:
            yield Item.from_parent(self, name=self.path.stem, case=yaml.load(file, yaml.CSafeLoader))

def pytest_collect_file(file_path, parent):
    if file_path.suffix == ".yaml":
        return File.from_parent(parent, path=file_path)
"""
GATHER = """\
import asyncio, json, os
import agent

CASES = json.load(open(os.environ["BENCH_CASES"]))

async def one(case):
    async def call(name, arguments):
        return case["input"]["mock_function_responses"][name]
    await agent.arun(case["input"]["message"], call)

async def main():
    await asyncio.gather(*map(one, CASES))

asyncio.run(main())
"""
KEEPING_NOTHING = """\
class NoJournal:
    def __init__(self, path, head, kept=()):
        pass

    def append(self, case_id, line):
        pass

    def iter_lines(self, order):
        return ()

    def close(self, remove):
        pass

def pytest_sessionstart():
    # Not before evalkit starts: pytest would rewrite its modules.
    from evalkit.plugin import case_runner, result_collector, verdicts

    case_runner.serialize = lambda verdict, config, redact: verdicts.WireVerdict("", verdict)
    result_collector.Journal = NoJournal
    result_collector.write_run = lambda path, run, lines: None
"""
WORDS = ("drill", "pump", "kettle", "lamp", "battery", "charger", "never", "starts", "leaks", "since", "the", "reset")


def case(number: int) -> dict[str, Any]:
    """One case of about 2 kB as YAML; the same for the same number."""
    rng = random.Random(number)
    serial, bought = f"SN-{rng.randrange(10**8):08}", f"20{rng.randrange(10, 26)}-0{rng.randrange(1, 10)}-15"
    sender, ticket, covered = f"customer{number}@example.com", f"T-{100_000 + number}", rng.random() < 0.5
    prose = " ".join(rng.choices(WORDS, k=90))
    parameters = {"look_up": ("serial", "bought"), "open_ticket": ("serial", "priority", "summary")}
    parameters["send_mail"] = ("to", "subject", "body")
    return {
        "description": f"case {number}",
        "agent": "bench",
        "functions": {
            name: {
                "description": f"The function {name} of the service desk.",
                "parameters": {
                    "type": "object",
                    "properties": {key: {"type": "string", "description": f"the {key}"} for key in keys},
                    "required": list(keys),
                },
            }
            for name, keys in parameters.items()
        },
        "input": {
            "message": f"From: {sender}\n\nI bought {serial} on {bought}.\n{prose}\n",
            "mock_function_responses": {
                "look_up": {"serial": serial, "covered": covered},
                "open_ticket": {"ticket": ticket, "status": "open"},
                "send_mail": {"status": "sent"},
            },
        },
        "expected_output": {
            "expected_function_calls": [
                {"function_name": "look_up", "arguments": {"serial": serial, "bought": bought}},
                {
                    "function_name": "open_ticket",
                    "arguments_contain": {"serial": serial, "priority": "high" if covered else "low"},
                },
                {"function_name": "send_mail", "body_contains": [ticket]},
            ],
        },
    }


def project(folder: Path, count: int) -> None:
    """The same cases three times: for evalkit, as JSON for the plain test, and beside the 30-line plugin."""
    cases = [case(number) for number in range(count)]
    for name, conftest in (("scenarios", CONFTEST), ("yamlmin", YAML_PLUGIN)):
        (folder / name).mkdir()
        (folder / name / "conftest.py").write_text(conftest)
    for number, data in enumerate(cases):
        text = yaml.dump(data, Dumper=yaml.CSafeDumper, sort_keys=False)
        for name in ("scenarios", "yamlmin"):
            (folder / name / f"case_{number:05}.yaml").write_text(text)
    (folder / "cases.json").write_text(json.dumps([{"id": f"case_{n:05}", **data} for n, data in enumerate(cases)]))
    scripts = {"agent": AGENT, "test_bare": BARE, "gather": GATHER, "keeping_nothing": KEEPING_NOTHING}
    for name, text in scripts.items():
        (folder / f"{name}.py").write_text(text)
    (folder / "pytest.ini").write_text("[pytest]\npythonpath = .\n")
