"""The cases that every system runs, in the form of each: seeded, the same for a number on every machine."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

PEERS = Path(__file__).resolve().parent

TOOLS = [
    {
        "name": "find_book",
        "description": "Looks a book up.",
        "parameters": {
            "type": "object",
            "properties": {
                "isbn": {"type": "string", "description": "13 digits"},
                "branch": {"type": "string", "description": "of the library"},
            },
            "required": ["isbn", "branch"],
        },
    },
    {
        "name": "reserve",
        "description": "Puts a book aside.",
        "parameters": {
            "type": "object",
            "properties": {
                "isbn": {"type": "string", "description": "13 digits"},
                "reader": {"type": "string", "description": "number of the card"},
                "days": {"type": "integer", "description": "how long"},
                "shelf": {"type": "string", "description": "where it stands"},
            },
            "required": ["isbn", "reader", "days"],
        },
    },
    {
        "name": "send_mail",
        "description": "Writes to a reader.",
        "parameters": {
            "type": "object",
            "properties": {
                "to": {"type": "string", "description": "address"},
                "subject": {"type": "string", "description": "one line"},
                "body": {"type": "string", "description": "the text"},
            },
            "required": ["to", "subject", "body"],
        },
    },
]
WORDS = ["garden", "harbour", "winter", "letter", "silent", "river", "glass", "orchard", "lantern", "meadow", "copper"]


def case(number: int, *, broken: bool) -> dict[str, Any]:
    """One case, the same for a number on every machine."""
    chosen = random.Random(number)
    isbn, reader = f"978{chosen.randrange(10**10):010}", f"R{chosen.randrange(10**6):06}"
    title = " ".join(chosen.choice(WORDS) for _ in range(3)).title()
    available, shelf = chosen.random() < 0.6, f"{chosen.choice('ABCDEF')}{chosen.randrange(90)}"
    branch, held = chosen.choice(["North", "Harbour", "Old town"]), f"V-{100000 + number}"
    story = " ".join(chosen.choice(WORDS) for _ in range(90))
    message = f"Reader: {reader}\nMail: {reader.lower()}@example.com\nISBN: {isbn}\nBranch: {branch}\n\n{story}\n"
    body = f"Dear reader,\n{title} waits for you under {held}.\nYour library"
    days = 14 if available else 7
    calls = [
        {"name": "find_book", "arguments": {"isbn": "0000" if broken else isbn, "branch": branch}},
        {"name": "reserve", "arguments": {"isbn": isbn, "reader": reader, "days": days, "shelf": shelf}},
        {
            "name": "send_mail",
            "arguments": {"to": f"{reader.lower()}@example.com", "subject": "Your reservation", "body": body},
        },
    ]
    return {
        "name": f"reserve_{number:05}",
        "message": message,
        "tools": TOOLS,
        "mocks": {
            "find_book": {"title": title, "available": available, "shelf": shelf},
            "reserve": {"number": held, "status": "held"},
            "send_mail": {"status": "sent"},
        },
        "reference": calls,
        "expected": {
            "count": 3,
            "order": [call["name"] for call in calls],
            "find_book": calls[0]["arguments"],
            "reserve": {"reader": reader, "days": days},
            "phrase": held,
        },
    }


def evalkit_case(case: dict[str, Any]) -> dict[str, Any]:
    """The same case as evalkit has it."""
    expected = case["expected"]
    return {
        "agent": "desk",
        "input": {"message": case["message"], "mock_function_responses": case["mocks"]},
        "expected_output": {
            "expected_function_calls": [
                {"function_name": "find_book", "arguments": expected["find_book"]},
                {"function_name": "reserve", "arguments_contain": expected["reserve"]},
                {"function_name": "send_mail", "body_contains": [expected["phrase"]]},
            ]
        },
        "functions": {
            tool["name"]: {"description": tool["description"], "parameters": tool["parameters"]}
            for tool in case["tools"]
        },
    }


def tavern_test(case: dict[str, Any]) -> dict[str, Any]:
    """The same case as Tavern has it: a request to the agent's service, and what must be in the response. It holds
    arguments to what is expected of them, and no more: exact ones can't be asked for beside partial ones."""
    expected = case["expected"]
    return {
        "test_name": case["name"],
        "stages": [
            {
                "name": "run the agent",
                "request": {
                    "url": "http://127.0.0.1:{tavern.env_vars.BENCH_PORT}/run",
                    "method": "POST",
                    "json": {key: case[key] for key in ("message", "tools", "mocks")},
                },
                "response": {
                    "status_code": 200,
                    "strict": ["json:off"],
                    "json": {key: expected[key] for key in ("count", "order", "find_book", "reserve")},
                    "verify_response_with": {
                        "function": "tavern.helpers:validate_regex",
                        "extra_kwargs": {"expression": expected["phrase"]},
                    },
                },
            }
        ],
    }


EVALKIT_AGENT = """\
import asyncio
import desk, evalkit

@evalkit.agent("desk")
async def agent(task):
    results = []
    while True:
        if desk.WAIT:
            await asyncio.sleep(desk.WAIT)
        name, value = desk.step(task.message, results)
        if name is None:
            return value
        results.append(await task.acall(name, **value))
"""


def write_data(folder: Path, number: int, broken: int) -> None:
    """All forms of `number` cases, of which the first `broken` expect what the agent does not do."""
    if (folder / "complete").exists() and (folder / "tavern").exists():
        return
    shutil.rmtree(folder, ignore_errors=True)
    made = [case(place, broken=place < broken) for place in range(number)]
    for name in ("yaml", "evalkit/scenarios", "promptfoo", "tavern"):
        (folder / name).mkdir(parents=True)
    (folder / "cases.json").write_text(json.dumps(made))
    (folder / "evalkit" / "conftest.py").write_text(EVALKIT_AGENT)
    for each in made:
        (folder / "yaml" / f"{each['name']}.yaml").write_text(block(each))
        (folder / "evalkit" / "scenarios" / f"{each['name']}.yaml").write_text(block(evalkit_case(each)))
        (folder / "tavern" / f"test_{each['name']}.tavern.yaml").write_text(block(tavern_test(each)))
        tested = {"description": each["name"], "vars": {k: each[k] for k in ("message", "tools", "mocks", "expected")}}
        (folder / "promptfoo" / f"{each['name']}.yaml").write_text(block([tested]))
    (folder / "promptfoo.json").write_text(
        json.dumps(
            {
                "prompts": ["{{message}}"],
                "providers": [f"file://{PEERS / 'promptfoo_agent.mjs'}"],
                "defaultTest": {
                    "assert": [{"type": "javascript", "value": f"file://{PEERS / 'promptfoo_checks.mjs'}"}]
                },
                "tests": f"file://{folder}/promptfoo/*.yaml",
            }
        )
    )
    (folder / "complete").touch()


def block(data: Any) -> str:
    """YAML as a person writes it: block style, texts of several lines as such."""
    import yaml

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            return True

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.Node:
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)

    Dumper.add_representer(str, text)
    return str(yaml.dump(data, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=100))
