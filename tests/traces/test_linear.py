"""Trace files of any size and format are read, searched for gaps and imported in time that grows as they do."""

from __future__ import annotations

import importlib.util
import sys
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from evalkit.features.recorded_runs.importing import build_case_files
from evalkit.hosts.traces import span_files, spans
from evalkit.hosts.traces.evidence import match_answers
from evalkit.hosts.traces.log_formats import Conversation, UnreadableLogError
from evalkit.hosts.traces.read_log import read_log

SPEC = importlib.util.spec_from_file_location("trace_files", Path(__file__).parents[2] / "benchmarks/trace_files.py")
assert SPEC is not None
assert SPEC.loader is not None
trace_files = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(trace_files)


def read(path: Path) -> int:
    """Return how many conversations the file holds, once their gaps are known and cases were made of them."""
    found = [item for item in read_log(path) if isinstance(item, Conversation)]
    for conversation in found:
        match_answers(conversation)
        with suppress(UnreadableLogError):
            build_case_files(conversation, agent="a", name="a_001")
    return len(found)


def count_lines(path: Path) -> int:
    """Count the lines of Python that reading a file runs; a round of a loop in one line counts."""
    count = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        found = read(path)
    finally:
        sys.settrace(before)
    assert found
    return count


@pytest.mark.parametrize("name", trace_files.FILES)
def test_reading_four_times_as_much_takes_four_times_as_long(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is quadratic takes up to sixteen times as long."""
    monkeypatch.setattr(spans, "_DEEPEST", 5)
    monkeypatch.setattr(span_files, "_MOST_SHARED", 5)
    lines = []
    for n in (1, 20, 80):  # the first fills caches
        path = tmp_path / f"{n}.jsonl"
        path.write_text(trace_files.FILES[name](n))
        lines.append(count_lines(path))
    assert lines[2] < 4.5 * lines[1]
