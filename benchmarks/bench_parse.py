"""Loading YAML case files, against PyYAML: python benchmarks/bench_parse.py [FILES] [ROUNDS].

Prints medians over the rounds, each round running every system once over the same generated files of about 2.3 kB.
Only the ratios mean something.
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import yaml

from evalkit.yamlfile.events import Limits
from evalkit.yamlfile.parse import load
from evalkit.yamlfile.positions import read_positions
from evalkit.yamlfile.write import dump

FAULTS = (
    "stops half-way through the cycle and shows error E24",
    "does not start at all, not even after a reset",
    "makes a loud grinding noise for about ten seconds",
)
PARAMETERS = {
    "check_warranty": {"serial_number": {"type": "string", "description": "Serial number, SN and 8 characters"}},
    "create_ticket": {
        "serial_number": {"type": "string"},
        "priority": {"type": "string", "enum": ["low", "normal", "high"]},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "send_email": {"to": {"type": "string"}, "subject": {"type": "string"}, "body": {"type": "string"}},
}


def case(number: int) -> dict[str, Any]:
    """One generated case, the same for the same number."""
    pick = random.Random(number)
    serial = "SN" + "".join(pick.choices("ABCDEFGHJKLMNPQRSTUVWXYZ23456789", k=8))
    ticket, day = f"TKT-{number}", f"20{pick.randint(22, 25)}-{pick.randint(1, 12):02d}-{pick.randint(1, 28):02d}"
    body = (
        f"Hello,\n\nI bought this unit on {day} from your shop in the old town, serial number {serial}. "
        f"Since last week it {pick.choice(FAULTS)}.\nI have cleaned the filter, unplugged it over night and followed "
        f"the steps of chapter {pick.randint(2, 9)} of the manual, but nothing has changed and I need it every day.\n"
        "Could you please tell me whether it is still under warranty, open a repair case, and write me a short "
        "confirmation with the case number?\n\nKind regards,\nMaria\n"
    )
    return {
        "scenario_id": f"valid_warranty_{number:05d}",
        "description": "Customer with a valid warranty asks for its status",
        "tags": ["smoke", "email"],
        "functions": {
            name: {
                "description": f"The function {name} of the warranty desk.",
                "parameters": {"type": "object", "properties": properties, "required": [next(iter(properties))]},
            }
            for name, properties in PARAMETERS.items()
        },
        "input": {
            "email": {"subject": "Problem with my unit", "body": body, "from": f"maria{number}@example.com"},
            "mock_function_responses": {
                "check_warranty": {"serial_number": serial, "status": "valid", "expiration_date": day},
                "create_ticket": {"ticket_id": ticket, "status": "created"},
                "send_email": {"message_id": f"msg-{number}", "status": "sent"},
            },
        },
        "expected_output": {
            "scenario_instruction_used": "valid-warranty",
            "processing_time_ms": 60000,
            "expected_function_calls": [
                {"function_name": "check_warranty", "arguments": {"serial_number": serial}},
                {"function_name": "create_ticket", "arguments_contain": {"serial_number": serial}},
                {"function_name": "send_email", "body_contains": [serial, ticket]},
            ],
        },
    }


def events_only(text: str) -> None:
    for _ in yaml.parse(text, yaml.CSafeLoader):
        pass


SYSTEMS: dict[str, Callable[[str], Any]] = {
    "yaml.CSafeLoader": lambda text: yaml.load(text, yaml.CSafeLoader),
    "events only": events_only,
    "evalkit.yamlfile.load": lambda text: load(text, "bench.yaml"),
    "evalkit.yamlfile.positions": read_positions,
}


def main(files: int = 300, rounds: int = 7) -> None:
    cases = [case(number) for number in range(files)]
    texts = [dump(data) for data in cases]
    print(f"{files} files of {sum(map(len, texts)) // files} characters, {rounds} rounds")
    assert [load(text, "bench.yaml", Limits()) for text in texts] == cases
    times: dict[str, list[float]] = {name: [] for name in SYSTEMS}
    for _ in range(rounds):
        for name, system in SYSTEMS.items():
            start = time.process_time()
            for text in texts:
                system(text)
            times[name].append((time.process_time() - start) / files)
    base = statistics.median(times["yaml.CSafeLoader"])
    for name, spent in times.items():
        median = statistics.median(spent)
        print(f"{name:28} {median * 1e3:6.3f} ms per file   x {median / base:.2f}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
