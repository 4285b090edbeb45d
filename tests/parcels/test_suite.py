"""The reference suite `parcels`: a model served on this machine, its cache of replies, and streaming parity."""

from __future__ import annotations

import asyncio
import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("openai")

from evalkit import Settings
from evalkit.features.parity.feature import ParityCheck
from evalkit.project import Project
from evalkit.records.verdict import Verdict
from evalkit.runner.changed_runs import arun_with_changes
from evalkit.runner.run_case import run_case
from scenarios.parcels.service import ParcelService

ROOT = Path(__file__).parents[2]
README = (ROOT / "scenarios/parcels/README.md").read_text("utf-8")
CASES = {Path(file.id).stem: file for file in Project(ROOT).load_cases(["scenarios/parcels"])}


@contextmanager
def serve(*, cuts_streams: bool = False) -> Iterator[ParcelService]:
    service = ParcelService(cuts_streams=cuts_streams)
    threading.Thread(target=service.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield service
    finally:
        service.shutdown()
        service.server_close()


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.delenv("CI", raising=False)


def run_parity(name: str, service: ParcelService) -> Verdict:
    settings = Settings(root=ROOT, model=f"openai:clerk?base_url={service.url}&stream=0")
    case = CASES[name].case
    assert case is not None
    return asyncio.run(arun_with_changes(case, None, settings, parts={"parity": ParityCheck()}))


@pytest.mark.parametrize("name", CASES)
def test_offline_the_case_replays_what_was_recorded(name: str) -> None:
    case = CASES[name].case
    assert case is not None
    verdict = run_case(case, settings=Settings(root=ROOT))
    assert (verdict.status, verdict.transcript.cassette) == ("passed", "recorded")


@pytest.mark.parametrize("name", CASES)
def test_streamed_and_whole_the_calls_are_the_same(name: str) -> None:
    with serve() as service:
        verdict = run_parity(name, service)
    assert [(run.change, run.status) for run in verdict.changed_runs] == [("streamed", "passed")]


@pytest.mark.parametrize(
    ("name", "cut_calls"),
    [
        ("one_parcel_001", 'track_parcel(number="P-471")'),
        ("two_parcels_001", 'track_parcel(number="P-471"), track_parcel(number="P-471")'),
        ("no_number_001", None),
    ],
)
def test_a_service_that_cuts_its_streams_is_found_where_there_is_a_call(name: str, cut_calls: str | None) -> None:
    with serve(cuts_streams=True) as service:
        verdict = run_parity(name, service)
    assert verdict.status == ("failed" if cut_calls else "passed")
    assert [reason.message.rpartition("streamed: ")[2] for reason in verdict.reasons] == (
        [cut_calls] if cut_calls else []
    )


def test_the_commands_of_the_readme_do_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache lies in the project's folder, so that the commands run in a copy of it, as processes."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    folder = tmp_path / "scenarios" / "parcels"
    folder.mkdir(parents=True)
    for file in (ROOT / "scenarios/parcels").iterdir():
        if file.suffix in (".yaml", ".md"):
            (folder / file.name).write_bytes(file.read_bytes())
    parity, cache = re.findall(r"^pytest (.*)$", README, re.MULTILINE)
    with serve() as service:

        def run(command: str) -> str:
            words = [word.replace("http://127.0.0.1:8377/v1", service.url) for word in shlex.split(command)]
            done = subprocess.run(
                [sys.executable, "-m", "pytest", *words], cwd=tmp_path, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stdout + done.stderr
            return done.stdout

        assert "  streamed: ✓" in run(parity)
        assert service.requests == 10
        first, second = run(cache), run(cache)
    assert service.requests == 15
    assert "no live measurement" in first
    assert "cache: 5 of 5 replies came from the cache and not from a live model" in second
