"""Compare what two versions of evalkit print and write for the reference suites, times aside.

    python benchmarks/compare_versions.py OLD_CHECKOUT NEW_CHECKOUT

Each version runs its own copy of the reference suites, offline, with this interpreter. The terminal output, the run
file, JUnit, HTML, Markdown, annotations and spans are compared line by line, and so is what `evalkit smoke`, `lint`
and `mutate` print. Exit status 1 if anything differs.
"""

from __future__ import annotations

import difflib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

COPIED = ("evalkit", "scenarios", "mocks", "docs", "tests", "conftest.py", "pyproject.toml", "README.md")
RUN = (
    *("-m", "pytest", "--evalkit", "-v", "--color=no", "-p", "no:cacheprovider", "--junitxml=junit.xml"),
    *("--evalkit-results=run.json", "--evalkit-html=report.html", "--evalkit-trace=all"),
)
COMMANDS = {
    "pytest --evalkit": RUN,
    "evalkit report --format markdown": ("-m", "evalkit", "report", "run.json", "--format", "markdown"),
    "evalkit report --format github": ("-m", "evalkit", "report", "run.json", "--format", "github"),
    "evalkit report --format trace": ("-m", "evalkit", "report", "run.json", "--format", "trace", "--conversation"),
    "evalkit report --format otel": ("-m", "evalkit", "report", "run.json", "--format", "otel"),
    "evalkit smoke": ("-m", "evalkit", "smoke", "scenarios"),
    "evalkit lint": ("-m", "evalkit", "lint"),
    "evalkit mutate": ("-m", "evalkit", "mutate", "scenarios"),
}
TIMES = (
    (re.compile(r'("(?:overhead_ms|wall_s|started|duration_ms|seconds|max|median|p95)": ?)[^,}\n]+'), r"\1T"),
    (re.compile(r'( (?:time|timestamp|hostname)=)"[^"]*"'), r'\1"T"'),
    (re.compile(r'(name="evalkit\.(?:overhead|elapsed|wall)\w*" value=)"[^"]*"'), r'\1"T"'),
    (re.compile(r"\b\d+(?:\.\d+)? (?:ms|s|min)\b"), "T"),
    (re.compile(r"\bin \d+(?:\.\d+)?s\b"), "in T"),
    (re.compile(r"={2,}"), "=="),  # a title's padding depends on how long a time is
    (re.compile(r'("(?:[a-zA-Z]*UnixNano|traceId|spanId|parentSpanId)": ?)"[^"]*"'), r'\1"T"'),
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?(?:\.\d+)?(?:Z|\+00:00| UTC)?"), "D"),
)


def run_version(checkout: Path, folder: Path) -> dict[str, str]:
    """Run the reference suites of `checkout` in `folder`. Return each output by its name, without times."""
    for name in COPIED:
        source = checkout / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        elif source.exists():
            shutil.copy(source, folder / name)
    environment = {**os.environ, "PYTHONPATH": str(folder), "COLUMNS": "120"}
    outputs = {}
    for name, command in COMMANDS.items():
        done = subprocess.run(
            [sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        outputs[name] = f"{done.stdout}\n{done.stderr}\nexit status {done.returncode}\n"
    for name in ("run.json", "junit.xml", "report.html"):
        file = folder / name
        outputs[name] = file.read_text("utf-8") if file.exists() else "(not written)"
    return {name: normalise(text, folder) for name, text in outputs.items()}


def normalise(text: str, folder: Path) -> str:
    """Replace times, dates and the folder; one JSON value a line, so that a difference is short."""
    text = text.replace(str(folder), "ROOT")
    for pattern, replacement in TIMES:
        text = pattern.sub(replacement, text)
    return re.sub(r'(,(?="|\{)|>(?=<))', r"\1\n", text)


def main(arguments: list[str]) -> int:
    old, new = (Path(argument).resolve() for argument in arguments)
    with tempfile.TemporaryDirectory() as temporary:
        folders = [Path(temporary) / name / "project" for name in ("old", "new")]
        for folder in folders:
            folder.mkdir(parents=True)
        outputs = [run_version(checkout, folder) for checkout, folder in zip((old, new), folders, strict=True)]
    differing = 0
    for name, before in outputs[0].items():
        lines = list(difflib.unified_diff(before.splitlines(), outputs[1][name].splitlines(), "old", "new", "", "", 1))
        differing += bool(lines)
        result = "the same" if not lines else f"{len(lines)} lines of difference"
        print(f"{name}: {result} ({len(before.splitlines())} lines)")
        for line in lines[:60]:
            print(f"    {line[:300]}")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
