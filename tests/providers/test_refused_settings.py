"""A service refuses a key of a request: the case is an error that names the setting, and where it stands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("openai")

import evalkit
from evalkit.models.providers.turns import ScriptedProvider
from evalkit.records.settings import Settings
from evalkit.records.transcript import ModelTurn, Usage
from tests.servers.replay import Answer, ReplayServer

CASE = "agent: desk.md\ninput: {message: hi}\nexpected_output: {response_contains: Hi}\n"
OWN = "leave it out there, or write 'settings: {temperature: null}' in the case"


@pytest.fixture
def refuse(tmp_path: Path, replay: ReplayServer, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    (tmp_path / "pyproject.toml").write_text("")
    folder = tmp_path / "scenarios"
    folder.mkdir()
    (folder / "desk.md").write_text("---\nname: desk\n---\nBe kind.\n")
    (folder / "suite.yaml").write_text("settings:\n  temperature: 0\n")

    def run(
        key: str | None, *, own: str = "", options: str = "", status: int = 400, **settings: Any
    ) -> evalkit.Verdict:
        (folder / "a_001.yaml").write_text(CASE + own)
        error = {"message": "No", "type": "invalid_request_error", "param": key, "code": "unsupported_value"}
        replay.answers[:] = [Answer(json.dumps({"error": error}), status=status)] * 3
        case = evalkit.load_case(folder / "a_001.yaml", root=tmp_path)
        model = f"openai:m?base_url={replay.url}/v1&retries=0{options}"
        return evalkit.run_case(case, settings=Settings(root=tmp_path, model=model, **settings))

    return run


@pytest.mark.parametrize(
    ("key", "options", "advice"),
    [
        ("temperature", {}, f"temperature is set by scenarios/suite.yaml:2:16, settings.temperature: {OWN}"),
        (
            "temperature",
            {"status": 404},
            f"temperature is set by scenarios/suite.yaml:2:16, settings.temperature: {OWN}",
        ),
        (
            "temperature",
            {"temperature": 0.5, "from_flags": frozenset({"temperature"})},
            "temperature is set by --evalkit-temperature: leave it out",
        ),
        (
            "max_tokens",
            {"own": "settings: {max_output_tokens: 5}\n"},
            "max_output_tokens is set by scenarios/a_001.yaml:4:31, settings.max_output_tokens: leave it out there, "
            "or write 'settings: {max_output_tokens: null}' in the case",
        ),
        (
            "reasoning.effort",
            {"reasoning_effort": "huge", "options": "&api=responses"},
            "reasoning_effort is set by 'reasoning_effort' in [tool.evalkit]: leave it out there, or write "
            "'settings: {reasoning_effort: null}' in the case",
        ),
        (
            None,
            {"seed": 7},
            "If it is a setting that the model refuses, these are in the request: temperature "
            "(scenarios/suite.yaml:2:16, settings.temperature), seed ('seed' in [tool.evalkit])",
        ),
    ],
)
def test_a_refused_setting_is_an_error_that_says_where_it_stands(
    refuse: Any, key: str | None, options: dict[str, Any], advice: str
) -> None:
    verdict = refuse(key, **options)

    assert (verdict.status, verdict.reasons[0].code) == ("error", "provider_error")
    assert verdict.reasons[0].message.splitlines()[-1] == advice


def test_an_option_of_the_model_is_named_alone(refuse: Any) -> None:
    verdict = refuse("temperature", options="&temperature=1")

    assert verdict.reasons[0].message.endswith(". The model's name sets it: leave out temperature=1.0")


def test_what_nobody_has_set_brings_no_advice(refuse: Any) -> None:
    assert refuse("messages[0].content").reasons[0].message.endswith(": 400: No")


def test_a_reply_that_is_cut_off_fails_and_names_the_setting(refuse: Any) -> None:
    turn = ModelTurn(text="Hi", finish_reason="length", usage=Usage(output_tokens=3, reasoning_tokens=2))
    script = ScriptedProvider([turn])

    verdict = refuse(None, extra={"provider": lambda case_id, run: script})

    assert (verdict.status, verdict.reasons[0].code) == ("failed", "stop_reason")
    assert verdict.reasons[0].message == (
        "the run ended with 'length', expected 'completed'; the model's reply was cut off after 5 tokens; "
        "settings.max_output_tokens says how many it may have"
    )
