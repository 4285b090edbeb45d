"""How the text-call parser's time grows with hostile text: python benchmarks/bench_hostile_text.py [SHOWN].

Each text of tests/wire/text_calls/hostile_texts.py, at 1e4, 1e5 and 1e6 characters: CPU time in milliseconds, the
slowest first (default: 15 of them), and the factor for each ten times as many characters. Linear is 10.
"""

from __future__ import annotations

import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from evalkit.wire.text_calls import parse_text_calls
from tests.wire.text_calls.hostile_texts import HOSTILE

SIZES = (10_000, 100_000, 1_000_000)
FUNCTIONS: list[dict[str, Any]] = [
    {"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}}
]


def milliseconds(text: str) -> float:
    started = time.process_time()
    parse_text_calls(text, FUNCTIONS)
    return (time.process_time() - started) * 1000


def main() -> None:
    shown = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    found = {name: [milliseconds(make(size)) for size in SIZES] for name, make in HOSTILE.items()}
    print(f"{'text':60} {'1e4':>9} {'1e5':>9} {'1e6':>9}   growth")
    slowest = sorted(found.items(), key=lambda item: -item[1][-1])
    for name, times in slowest[:shown]:
        growth = [after / max(before, 0.01) for before, after in pairwise(times)]
        columns = " ".join(f"{number:9.1f}" for number in times)
        print(f"{name:60} {columns}   {' '.join(f'{factor:.0f}x' for factor in growth)}")
    worst = max((after / before, name) for name, (_, before, after) in found.items() if after > 100)
    print(f"{len(found)} texts; the steepest from 1e5 to 1e6: {worst[0]:.0f}x ({worst[1]})")


if __name__ == "__main__":
    main()
