"""The agent that every system runs, without a model, and the checks as one would write them by hand.

WAIT is what a model turn takes, in seconds: four turns a case.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

WAIT = float(os.environ.get("BENCH_WAIT", "0"))
CONCURRENCY = int(os.environ.get("BENCH_CONCURRENCY", "50"))
Call = Callable[[str, dict[str, Any]], Any]


def cases() -> list[dict[str, Any]]:
    return json.loads(Path(os.environ["BENCH_CASES"]).read_text("utf-8"))  # type: ignore[no-any-return]


def step(message: str, results: list[Any]) -> tuple[str | None, Any]:
    """What a model would say after `results`: a function and its arguments, or None and the answer."""
    lines = dict(line.split(": ", 1) for line in message.splitlines() if ": " in line)
    if not results:
        return "find_book", {"isbn": lines["ISBN"], "branch": lines["Branch"]}
    if len(results) == 1:
        days = 14 if results[0]["available"] else 7
        return "reserve", {"isbn": lines["ISBN"], "reader": lines["Reader"], "days": days, "shelf": results[0]["shelf"]}
    if len(results) == 2:
        body = f"Dear reader,\n{results[0]['title']} waits for you under {results[1]['number']}.\nYour library"
        return "send_mail", {"to": lines["Mail"], "subject": "Your reservation", "body": body}
    return None, f"Reserved under {results[1]['number']}."


def act(message: str, call: Call) -> tuple[list[dict[str, Any]], str]:
    """The calls that the agent makes, and its answer. Blocks."""
    calls: list[dict[str, Any]] = []
    results: list[Any] = []
    while True:
        time.sleep(WAIT) if WAIT else None
        name, value = step(message, results)
        if name is None:
            return calls, value
        calls.append({"name": name, "arguments": value})
        results.append(call(name, value))


async def aact(message: str, call: Call) -> tuple[list[dict[str, Any]], str]:
    """The same, without blocking."""
    calls: list[dict[str, Any]] = []
    results: list[Any] = []
    while True:
        if WAIT:
            await asyncio.sleep(WAIT)
        name, value = step(message, results)
        if name is None:
            return calls, value
        calls.append({"name": name, "arguments": value})
        results.append(call(name, value))


def mocked(case: dict[str, Any]) -> Call:
    return lambda name, arguments: case["mocks"][name]


def problems(calls: list[dict[str, Any]], expected: dict[str, Any]) -> list[str]:
    """Which of the five checks fail: number, order, exact arguments, some arguments, a phrase in one."""
    by_name = {call["name"]: call["arguments"] for call in calls}
    reserved = by_name.get("reserve", {})
    checks = {
        "count": len(calls) == expected["count"],
        "order": [call["name"] for call in calls] == expected["order"],
        "exact": by_name.get("find_book") == expected["find_book"],
        "partial": all(reserved.get(key) == value for key, value in expected["reserve"].items()),
        "phrase": expected["phrase"] in by_name.get("send_mail", {}).get("body", ""),
    }
    return [name for name, holds in checks.items() if not holds]


def told(passed: int, all_cases: int) -> None:
    """The line that the benchmark reads."""
    print(f"{passed} passed, {all_cases - passed} failed")
