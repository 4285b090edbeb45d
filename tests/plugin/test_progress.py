"""The line of a long run: on a terminal, in place of letters, and gone when it is over."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from io import StringIO
from typing import Any

import pytest

from evalkit.plugin.terminal import ProgressLine, format_progress

Project = Any


@pytest.mark.parametrize(
    ("done", "passed", "total", "seconds", "text"),
    [
        (312, 308, 1000, 7, "312 of 1,000 · 98.7 % passed · 45 per second · 15 s left"),
        (1, 0, 60, 40, "1 of 60 · 0 % passed · 2 per minute · 39 min 20 s left"),
        (999, 998, 1000, 10, "999 of 1,000 · 99.8 % passed · 100 per second · 10 ms left"),
        (1, 1, 60, 0, "1 of 60 · 100 % passed"),
    ],
)
def test_the_line_says_what_there_is_to_say(done: int, passed: int, total: int, seconds: float, text: str) -> None:
    assert format_progress(done, passed, total, seconds) == text


def test_the_line_is_written_over_and_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evalkit.plugin.terminal._PAUSE_S", 0)
    stream = StringIO()
    progress = ProgressLine(stream, 2)
    progress.count(object(), passed=True)
    progress.count(object(), passed=True)
    first, last = stream.getvalue()[1:].split("\r")[:2]
    assert first.startswith("1 of 2 · 100 % passed")
    assert last == " " * len(first)
    assert stream.getvalue().endswith("\r")


def in_terminal(project: Project, *arguments: str) -> str:
    """What a terminal of 100 columns is sent."""
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", "--evalkit", "-p", "no:hypothesispytest", *arguments],
        cwd=project.root,
        stdout=follower,
        stderr=follower,
        env={**os.environ, "COLUMNS": "100", "TERM": "xterm"},
    )
    os.close(follower)
    sent = b""
    try:
        while chunk := os.read(leader, 65536):
            sent += chunk
    except OSError:  # the terminal is gone with the process
        pass
    process.wait(30)
    os.close(leader)
    return sent.decode()


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["alone", "xdist"])
def test_on_a_terminal_a_long_run_has_a_line_and_no_letters(project: Project, workers: tuple[str, ...]) -> None:
    for number in range(60):
        project.case(f"good_{number:03}", {"calls": [["check", {"id": "A1"}]], "sleep": 0.01})
    sent = in_terminal(project, *workers)
    assert re.search(r"\r\d+ of 60 · 100 % passed · \d+ per second · \S+ m?s left", sent)
    assert "....." not in sent
    assert "60 passed" in sent
    assert "gate met" in sent


def test_a_short_run_has_letters(project: Project) -> None:
    project.case("good_001")
    assert " per second" not in in_terminal(project)
