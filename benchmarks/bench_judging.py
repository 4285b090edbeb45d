"""How long judging takes, compiled expectation and transcript given: medians of several rounds.

    python benchmarks/bench_judging.py [ROUNDS]

Bounds that must hold: a passing case of three calls well under 100 µs; 10 against 10 calls of one function in any
order under 1 ms if they match; 1,000 against 1,000 under 2 s, whether they match or not.
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from collections.abc import Iterator
from typing import Any

from evalkit.checks.compile import compile_expectation
from evalkit.checks.expectation import Expectation
from evalkit.records.transcript import FunctionCall, Timing, Transcript

BODY = "Dear customer, your unit SN12345 is covered until 2025-12-31. Ticket TKT-12345 is open. " * 8
USUAL = {
    "scenario_instruction_used": "valid-warranty",
    "processing_time_ms": 60000,
    "expected_function_calls": [
        {"function_name": "check_warranty", "arguments": {"serial": "SN12345"}, "result_contains": {"status": "valid"}},
        {"function_name": "create_ticket", "arguments_contain": {"serial": "SN12345", "priority": "normal"}},
        {"function_name": "send_email", "body_contains": ["SN12345", "2025-12-31", "TKT-12345"]},
    ],
}
MADE = [
    ("check_warranty", {"serial": "SN12345"}, {"status": "valid"}),
    ("create_ticket", {"serial": "SN12345", "priority": "normal", "summary": "Does not start"}, {"id": "TKT-12345"}),
    ("send_email", {"to": "jan@example.com", "body": BODY}, {"status": "sent"}),
]


def compiled(expected: dict[str, Any]) -> Expectation:
    expectation, problems = compile_expectation(expected)
    assert not problems
    return expectation


def transcript(made: list[tuple[str, dict[str, Any], Any]]) -> Transcript:
    calls = tuple(FunctionCall(name=n, arguments=a, result=r, index=i, turn=i) for i, (n, a, r) in enumerate(made))
    return Transcript(calls=calls, timing=Timing(model_ms=900), instruction_used="valid_warranty")


def many(count: int, key: str, *, match: bool) -> tuple[Expectation, Transcript]:
    """`count` calls of one function, shuffled; without a match each differs in one argument from the nearest."""
    sent = [{"id": number, "text": f"text {number} of {count}"} for number in range(count)]
    listed = [{"function_name": "f", key: arguments} for arguments in sent]
    moved = sent if match else [{**arguments, "id": arguments["id"] + count} for arguments in sent]
    made = [("f", arguments, None) for arguments in random.Random(count).sample(moved, count)]
    return compiled({"expected_function_calls": listed, "call_order": "any"}), transcript(made)


def workloads() -> Iterator[tuple[str, Expectation, Transcript]]:
    yield "usual case, 3 calls", compiled(USUAL), transcript(MADE)
    yield "the same, failing", compiled(USUAL), transcript(MADE[:2])
    for count in (10, 100, 1000):
        for key in ("arguments", "arguments_contain"):
            for match in (True, False):
                name = f"{count} x {count}, {key}, {'all match' if match else 'none matches'}"
                yield name, *many(count, key, match=match)


def main(rounds: int) -> None:
    for name, expectation, record in workloads():
        expectation.judge(record)
        times = []
        for _ in range(rounds):
            start = time.perf_counter()
            expectation.judge(record)
            times.append(time.perf_counter() - start)
        print(f"{name:<50} {statistics.median(times) * 1000:10.3f} ms")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
