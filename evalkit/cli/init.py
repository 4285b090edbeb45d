"""`evalkit init`: a small suite that is green at once, and shows the shape of one."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path

from evalkit.errors import UsageError
from evalkit.spec.schema import build_case_schema

SUITE = "scenarios/example"
AGENTS = "scenarios/conftest.py"  # not beside the cases: the next suite's agent is registered there too
SCHEMA = "scenarios/case.schema.json"


def write_suite(folder: Path) -> list[Path]:
    """Write the suite, and return its files. Raise UsageError, and write nothing, if one of them exists."""
    # The templates end in .txt, so that neither a wheel's compiler nor pytest takes them for code or cases of evalkit.
    texts = {}
    for entry in sorted(files("evalkit.cli").joinpath("template").iterdir(), key=lambda entry: entry.name):
        if entry.name.endswith(".txt"):
            name = entry.name.removesuffix(".txt")
            texts[AGENTS if name == "conftest.py" else f"{SUITE}/{name}"] = entry.read_text("utf-8")
    texts[SCHEMA] = json.dumps(build_case_schema(), indent=2) + "\n"
    there = [name for name in texts if (folder / name).exists()]
    if there:
        raise UsageError(
            f"{', '.join(sorted(there))} would be overwritten; remove what is there, or name another folder"
        )
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8", newline="\n")
    return [folder / name for name in texts]
