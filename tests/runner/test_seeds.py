"""Each run of a case is a draw: its seed, and that it makes no recording stale."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from evalkit.agents.model_choice import _shared_providers
from evalkit.models.cassettes.fingerprint import compute_fingerprint
from evalkit.models.providers.turns import ScriptedProvider
from evalkit.records.case import Case, CaseSettings, Repeat
from evalkit.records.settings import Settings, derive_seed
from evalkit.records.transcript import ModelRequest
from evalkit.records.verdict import Verdict
from evalkit.runner.run_case import run_case

MODEL = "openai:m?api=chat"
SEEDS = [7, derive_seed(7, "run 2"), derive_seed(7, "run 3")]


async def agent(task: Any) -> str:
    turn = await task.turn(ModelRequest(messages=({"role": "user", "text": "hi"},)))
    return str(turn.text)


@pytest.fixture
def script() -> Any:
    script = ScriptedProvider(["Hi."] * 9)
    _shared_providers[MODEL] = script
    yield script
    del _shared_providers[MODEL]


def run(root: Path, case_settings: CaseSettings | None = None, **settings: Any) -> Verdict:
    case = Case(
        id="s/a_001.yaml",
        input={"message": "hi"},
        expected_output={"response_contains": "Hi"},
        settings=case_settings or CaseSettings(),
        repeat=Repeat(3, 3),
    )
    return run_case(case, agent, Settings(root=root, **settings))


def test_each_live_run_has_a_seed_of_its_own_and_the_run_file_has_it(tmp_path: Path, script: ScriptedProvider) -> None:
    for _ in range(2):
        verdict = run(tmp_path, CaseSettings(seed=7), model=MODEL)
        assert [one.transcript.seed for one in verdict.runs] == SEEDS
        assert verdict.runs[1].transcript.to_json()["seed"] == SEEDS[1]

    assert [request.seed for request in script.requests] == SEEDS * 2


def test_without_a_seed_none_is_sent(tmp_path: Path, script: ScriptedProvider) -> None:
    verdict = run(tmp_path, model=MODEL)

    assert {request.seed for request in script.requests} == {None}
    assert "seed" not in verdict.runs[1].transcript.to_json()


def record_as_before(root: Path, settings: dict[str, float]) -> None:
    """Write what earlier versions recorded: temperature 0, and one seed for all runs."""
    request = {"system": None, "functions": [], "settings": settings, "messages": [{"user": "hi"}]}
    said = "".join(f"        {name}: {value}\n" for name, value in settings.items())
    for number in ("", ".run-2", ".run-3"):
        path = root / f"mocks/cassettes/s/a_001{number}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            f"evalkit_cassette: 1\nturns:\n  - request:\n      fingerprint: {compute_fingerprint(request)}\n"
            f"      settings:\n{said}      messages:\n        - user: hi\n    text: Hi.\n"
        )


@pytest.mark.parametrize(
    ("was", "now", "status"),
    [
        ({"temperature": 0.0, "seed": 0}, CaseSettings(), "passed"),
        ({"temperature": 0.0}, CaseSettings(), "passed"),
        ({"temperature": 0.0, "seed": 7}, CaseSettings(temperature=0.0, seed=7), "passed"),
        ({"temperature": 0.0, "seed": 0}, CaseSettings(seed=7), "passed"),
        ({"temperature": 0.0, "seed": 0}, CaseSettings(temperature=0.5), "error"),
        ({"temperature": 0.0, "seed": 0}, CaseSettings(max_output_tokens=5), "error"),
    ],
)
def test_recordings_of_before_are_replayed(
    tmp_path: Path, was: dict[str, float], now: CaseSettings, status: str
) -> None:
    record_as_before(tmp_path, was)

    assert run(tmp_path, now).status == status
