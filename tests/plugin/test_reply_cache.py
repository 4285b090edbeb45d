"""`--evalkit-cache`: what was asked before is not asked again, nothing passes for a live measurement."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.servers.model_service import ModelService, ask, serve_model

Project = Any
INSTRUCTION = """---
name: desk
trigger: any message
version: 1
available_functions:
  - {name: check, description: Looks it up., parameters: {type: object, properties: {id: {type: string}}}}
---
Answer.
"""
PRICES = "[tool.evalkit.prices.m]\ninput = 10.0\noutput = 10.0\n"


def answer(body: dict[str, Any]) -> dict[str, Any]:
    has_result = any(message["role"] == "tool" for message in body["messages"])
    return {"content": "Done."} if has_result else ask("check", id="A1")


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ModelService]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    with serve_model(answer) as running:
        yield running


@pytest.fixture
def desk(project: Project) -> Project:
    project.write("desk.md", INSTRUCTION)
    project.write("pyproject.toml", PRICES)
    project.case("a_001", agent="desk.md")
    return project


@pytest.mark.parametrize("mode", [(), ("-n", "1")])
def test_what_was_asked_before_is_not_asked_again(desk: Project, service: ModelService, mode: tuple[str, ...]) -> None:
    arguments = (f"--evalkit-model={service.model()}", "--evalkit-cache", *mode)
    assert desk.run_apart(*arguments).ret == 0
    assert len(service.requests) == 2
    result = desk.run_apart(*arguments)
    assert (result.ret, len(service.requests)) == (0, 2)
    result.stdout.fnmatch_lines([
        "evalkit *: live model openai:m*, and what .evalkit/cache has of its replies: no live measurement",
        "*1 case answered from the cache of replies: no live measurement",
        "models: 2 model turns, * 0.0022 USD*",
        "cache: 2 of 2 replies came from the cache and not from a live model; 220 tokens and 0.0022 USD saved",
    ])  # fmt: skip
    run = desk.run_file
    assert run.metadata["accounting"]["cache"] == {"replies": 2, "tokens": 220, "saved_usd": pytest.approx(0.0022)}
    (verdict,) = run.verdicts
    assert (verdict.transcript.cassette, [turn.source for turn in verdict.transcript.turns]) == (
        "cached",
        ["cache", "cache"],
    )


def test_another_prompt_asks_anew_and_so_does_another_model(desk: Project, service: ModelService) -> None:
    desk.run_apart(f"--evalkit-model={service.model()}", "--evalkit-cache")
    desk.write("desk.md", INSTRUCTION + "Be brief.\n")
    desk.run_apart(f"--evalkit-model={service.model()}", "--evalkit-cache")
    assert len(service.requests) == 4
    desk.run_apart(f"--evalkit-model={service.model('&stream=1')}", "--evalkit-cache")
    assert len(service.requests) == 6
    assert desk.run_file.verdicts[0].transcript.cassette is None


def test_repeats_are_asked_anew(desk: Project, service: ModelService) -> None:
    for _ in range(2):
        desk.run_apart(f"--evalkit-model={service.model()}", "--evalkit-cache", "--evalkit-repeat=2")
    assert len(service.requests) == 8
    assert not list((desk.root / ".evalkit/cache").glob("*.json"))


def test_the_models_of_a_comparison_are_asked_once(desk: Project, service: ModelService) -> None:
    other = service.model().replace("openai:m", "openai:n")
    for _ in range(2):
        result = desk.run_apart(f"--evalkit-compare=model={service.model()},{other}", "--evalkit-cache")
        assert result.ret == 0
    assert len(service.requests) == 4
    result.stdout.fnmatch_lines(["*2 cases answered from the cache of replies: no live measurement"])


def test_a_reply_that_somebody_else_wrote_is_not_read(desk: Project, service: ModelService) -> None:
    arguments = (f"--evalkit-model={service.model()}", "--evalkit-cache")
    desk.run_apart(*arguments)
    for entry in (desk.root / ".evalkit/cache").glob("*.json"):
        data = json.loads(entry.read_text("utf-8"))
        data["turn"]["text"] = "planted"
        entry.write_text(json.dumps(data), "utf-8")
    desk.run_apart(*arguments)
    assert len(service.requests) == 4
    assert "planted" not in (desk.root / ".evalkit/last-run.json").read_text("utf-8")


def test_a_cache_of_another_machine_is_not_read(
    desk: Project, service: ModelService, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    arguments = (f"--evalkit-model={service.model()}", "--evalkit-cache")
    desk.run_apart(*arguments)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "another"))
    desk.run_apart(*arguments)
    assert len(service.requests) == 4


def test_a_reply_with_a_secret_is_not_kept(desk: Project, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("SHOP_API_KEY", "canary-secret-4711")
    with serve_model(lambda body: {**answer(body), "content": "canary-secret-4711"}) as running:
        desk.run_apart(f"--evalkit-model={running.model()}", "--evalkit-cache")
    assert not list((desk.root / ".evalkit/cache").glob("*.json"))


def test_the_folder_stays_out_of_git_and_within_its_bound(desk: Project, service: ModelService) -> None:
    desk.write("pyproject.toml", PRICES + "[tool.evalkit.bounds]\ncache_bytes = 500\n")
    desk.run_apart(f"--evalkit-model={service.model()}", "--evalkit-cache")
    folder = desk.root / ".evalkit/cache"
    assert (folder / ".gitignore").read_text("ascii") == "*\n"
    assert sum(entry.stat().st_size for entry in folder.glob("*.json")) <= 500
    assert len(list(folder.glob("*.json"))) == 1


def test_the_command_shows_and_clears_it(desk: Project, service: ModelService) -> None:
    desk.run_apart(f"--evalkit-model={service.model()}", "--evalkit-cache")
    desk.write(".evalkit/cache/notes.txt", "mine")

    shown, cleared, empty = (desk.run_module("evalkit", "cache", *words) for words in ((), ("clear",), ()))
    assert [done.ret for done in (shown, cleared, empty)] == [0, 0, 0]
    assert shown.outlines[0].startswith("2 replies, ")
    assert cleared.outlines[0].startswith("deleted 2 replies, ")
    assert empty.outlines == ["0 replies, 0 bytes in .evalkit/cache"]
    assert (desk.root / ".evalkit/cache/notes.txt").exists()


def test_a_history_takes_no_run_with_a_cache(desk: Project, service: ModelService) -> None:
    result = desk.run_apart(f"--evalkit-model={service.model()}", "--evalkit-cache", "--evalkit-history=h.sqlite")
    assert (result.ret, (desk.root / "h.sqlite").exists()) == (0, False)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--evalkit-cache needs a live model: --evalkit-model=KIND:MODEL"),
        (["MODEL", "--evalkit-record=all"], "--evalkit-cache and --evalkit-record exclude each other"),
        (
            ["MODEL", "--evalkit-untrusted"],
            "--evalkit-cache and --evalkit-untrusted exclude each other: replies may be a stranger's",
        ),
        (["CI", "MODEL"], "--evalkit-cache is for trying prompts, and refused in CI: a gate needs measurements"),
        (["LINK", "MODEL"], "*cache is a link, and the cache of replies stays in the project; remove the link"),
    ],
)
def test_what_could_pass_for_a_measurement_is_refused(
    desk: Project, service: ModelService, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    if "CI" in arguments:
        monkeypatch.setenv("CI", "true")
    if "LINK" in arguments:
        (desk.root / ".evalkit").mkdir()
        os.symlink(desk.root, desk.root / ".evalkit" / "cache")
    words = [f"--evalkit-model={service.model()}" if word == "MODEL" else word for word in arguments]
    result = desk.run_apart("--evalkit-cache", *(word for word in words if word not in ("CI", "LINK")))
    assert result.ret == 4
    result.stderr.fnmatch_lines([f"*evalkit: {message}"])
    assert service.requests == []
