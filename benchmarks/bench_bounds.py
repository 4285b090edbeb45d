"""CPU time against size for hostile input: each row at n, 2n and 4n, so that what is not linear can be seen.

python benchmarks/bench_bounds.py [n]
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from trace_files import FILES

import evalkit
from evalkit.hosts.traces.read_log import read_log
from evalkit.models.streaming import StreamAccumulator
from evalkit.text.redact import Redactor

CASE = "description: x\ninput: {message: hi}\nexpected_output: {response_contains: [x]}\n"
Work = Callable[[int], Callable[[], object]]


def load(build: Callable[[int], str]) -> Work:
    def prepare(n: int) -> Callable[[], object]:
        file = Path(tempfile.mkdtemp(), "a_001.yaml")
        file.write_text(build(n))

        def run() -> None:
            with suppress(evalkit.EvalkitError):
                evalkit.load_case(file)

        return run

    return prepare


def list_calls(n: int) -> str:
    calls = "".join(f"  - {{function_name: f{index}}}\n" for index in range(n))
    forbidden = "".join(f"  - {{function_name: g{index}}}\n" for index in range(n))
    expected = f"  expected_function_calls:\n{calls}  forbidden_function_calls:\n{forbidden}"
    return f"input: {{message: hi}}\nexpected_output:\n{expected}"


def stream_calls(n: int) -> Callable[[], object]:
    chunks = []
    for index in range(n):
        function = {"name": "f", "arguments": '{"a": 1}'}
        call = {"index": index, "id": f"c{index}", "type": "function", "function": function}
        chunks.append({"tool_calls": [call]})

    def run() -> None:
        accumulator = StreamAccumulator()
        for chunk in chunks:
            accumulator.feed(chunk)
            accumulator.take()

    return run


def stream_text_calls(n: int) -> Callable[[], object]:
    piece = '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>\n'

    def run() -> None:
        accumulator = StreamAccumulator()
        for _ in range(n):
            accumulator.feed_text(piece)
            accumulator.take()

    return run


def match_calls(n: int) -> Callable[[], object]:
    expected = {"expected_function_calls": [{"function_name": "f", "arguments": {"a": index}} for index in range(n)]}
    calls = [{"name": "f", "arguments": {"a": index}} for index in reversed(range(n))]
    return lambda: evalkit.judge(expected, calls=calls)


def match_groups(n: int) -> Callable[[], object]:
    """Groups that could all be met by each call."""
    group = {"one_of": [{"function_name": "f"}, {"function_name": "g"}, {"function_name": "h"}]}
    expected = {"expected_function_calls": [group] * n, "call_order": "any"}
    calls = [{"name": "fgh"[index % 3], "arguments": {}} for index in range(n)]
    return lambda: evalkit.judge(expected, calls=calls)


def match_competing_groups(n: int) -> Callable[[], object]:
    """Groups of which any call fits almost all, and a call too few: nearly all combinations have to be tried."""
    groups = []
    for index in range(n):
        first, second, third = (
            {"function_name": "f", "arguments_contain": {"a": text}}
            for text in (f"{index} x", f"{index + 1} y", f"{index} z")
        )
        groups.append({"one_of": [[first, second], [{"function_name": "f"}, third]]})
    expected = {"expected_function_calls": groups, "call_order": "any"}
    texts = [f"{index % n} x {index % n} y {index % n} z" for index in range(2 * n - 2)]
    calls = [{"name": "f", "arguments": {"a": text}} for text in texts]
    return lambda: evalkit.judge(expected, calls=calls)


def read_trace(build: Callable[[int], str]) -> Work:
    def prepare(n: int) -> Callable[[], object]:
        file = Path(tempfile.mkdtemp(), "trace.jsonl")
        file.write_text(build(n))
        return lambda: [*read_log(file)]

    return prepare


def redact(unit: str) -> Work:
    return lambda n: lambda text=unit * n: Redactor()(text)  # type: ignore[misc]


ROWS: dict[str, tuple[int, Work]] = {
    "load: unknown keys": (2000, load(lambda n: CASE + "".join(f"k{index}: 1\n" for index in range(n)))),
    "load: a key n times": (2000, load(lambda n: CASE + "seed: 1\n" * n)),
    "load: unknown aliases": (2000, load(lambda n: f"{CASE}tags: [{', '.join(f'*a{index}' for index in range(n))}]\n")),
    "load: expected and forbidden calls": (5000, load(list_calls)),
    "text: unclosed envelopes": (2000, lambda n: lambda: evalkit.parse_text_calls("<tool_call>{" * n)),
    "text: whole calls": (1000, lambda n: lambda: evalkit.parse_text_calls('{"name": "f", "arguments": {}}\n' * n)),
    "stream: native calls": (8000, stream_calls),
    "stream: calls as text": (500, stream_text_calls),
    "matching: calls in reverse": (250, match_calls),
    "matching: groups of alternatives": (5, match_groups),
    "matching: groups that compete": (3, match_competing_groups),
    "redaction: beginnings of tokens": (5000, redact("xai-")),
    "redaction: assignments": (5000, redact("token = ")),
    "redaction: JSON": (1000, redact(json.dumps({"password": "hunter2", "id": 7}))),
    **{name: (1000, read_trace(build)) for name, build in FILES.items()},
}


def main() -> None:
    """Print the table."""
    factor = float(sys.argv[1]) if len(sys.argv) > 1 else 1.0
    print("| input | n | n | 2n | 4n | 4n to n |\n|---|---|---|---|---|---|")
    for name, (base, work) in ROWS.items():
        n = max(int(base * factor), 1)
        seconds = []
        for size in (n, 2 * n, 4 * n):
            run = work(size)
            since = time.process_time()
            run()
            seconds.append(time.process_time() - since)
        shown = " | ".join(f"{value:.3f} s" for value in seconds)
        print(f"| {name} | {n:,} | {shown} | {seconds[2] / seconds[0]:.1f} |", flush=True)


if __name__ == "__main__":
    main()
