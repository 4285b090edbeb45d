"""What the text-call parser recovers of real small models' outputs: python benchmarks/bench_textcalls.py [FILE].

FILE (default: ../shared/corpora/real_model_outputs.jsonl.gz beside the project) has one output a line: `format` as it
was asked for, `output`, `verdict` (a heuristic's: `no_call` for outputs that hold none) and `count`. An output is
recovered if at least one call of a declared function comes out of it; *before* repairs if one does that needed no
repair, *after* if any does. Recovered does not mean right: what the model decided is another question. Most of the rest
was cut off by the token limit.
"""

from __future__ import annotations

import gzip
import json
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from evalkit.wire.text_calls import parse_text_calls

DEFAULT = Path(__file__).parents[2] / "shared" / "corpora" / "real_model_outputs.jsonl.gz"
# As the prompts declared them.
FUNCTIONS = [
    {"name": name, "parameters": {"type": "object", "properties": {key: {"type": "string"} for key in keys}}}
    for name, keys in {
        "check_warranty": ["serial_number"],
        "create_ticket": ["serial_number", "priority", "summary"],
        "send_email": ["to", "subject", "body"],
    }.items()
]


def rows(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def share(part: int, total: int) -> str:
    return f"{part:4} {100 * part / total:4.0f} %" if total else f"{part:4}      -"


def main() -> None:
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT
    if not path.exists():
        sys.exit(f"{path} is not there")
    found: dict[str, Counter[str]] = defaultdict(Counter)
    repairs: Counter[str] = Counter()
    seconds, length = 0.0, 0
    outputs = rows(path)
    number = len(outputs)
    for row in outputs:
        text, count = row["output"] or "", row["count"]
        started = time.perf_counter()
        parsed = parse_text_calls(text, FUNCTIONS)
        seconds += time.perf_counter() - started
        length += len(text)
        counts = found[row["format"]]
        if row["verdict"] == "no_call":
            counts["none"] += count
            counts["invented"] += count * bool(parsed.calls)
            continue
        counts["outputs"] += count
        counts["before"] += count * any(not call.repairs for call in parsed.calls)
        counts["after"] += count * bool(parsed.calls)
        for repair in {repair.partition(": ")[0] for call in parsed.calls for repair in call.repairs}:
            repairs[repair] += count
    print(f"{'format as asked':26} {'outputs':>7}   {'before':>11}   {'after':>11}   {'no call':>7} {'invented':>8}")
    total: Counter[str] = sum(found.values(), Counter())
    for name, counts in [*sorted(found.items()), ("all", total)]:
        n = counts["outputs"]
        print(
            f"{name:26} {n:7}   {share(counts['before'], n)}   {share(counts['after'], n)}   "
            f"{counts['none']:7} {counts['invented']:8}"
        )
    print("\nrepairs, by outputs: " + ", ".join(f"{repair} {count}" for repair, count in repairs.most_common()))
    print(f"{seconds / number * 1e6:.0f} µs an output, of {length // number} characters on average")


if __name__ == "__main__":
    main()
