"""Record and replay: readable files, no secrets, a fingerprint, and staleness explained."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from evalkit.agents.instruction import Instruction
from evalkit.agents.model_choice import _shared_providers
from evalkit.agents.task import Task
from evalkit.errors import UsageError
from evalkit.models.providers.table import list_kinds
from evalkit.records.case import Case, CaseSettings, Declaration, Repeat
from evalkit.records.settings import Settings
from evalkit.records.transcript import ModelCall, ModelRequest, ModelTurn, Usage
from evalkit.records.verdict import Verdict
from evalkit.runner.run_case import run_case

KINDS = ", ".join(f"{name}:MODEL" for name in list_kinds())

CHECK = Declaration(
    name="check",
    description="Look up",
    parameters={"type": "object", "properties": {"n": {"type": "integer"}, "token": {}}, "required": ["n"]},
)
SEND = Declaration(name="send", parameters={"type": "object", "properties": {"to": {"type": "string"}}})
INSTRUCTION = Instruction(name="desk", body="Be brief.\nBe kind.", available_functions=(CHECK, SEND))
CASE = Case(
    id="scenarios/s/case_001.yaml",
    input={"message": "My key is sk-abcdefghijklmnopqrstuvwx.", "mock_function_responses": {"check": 1, "send": 2}},
    expected_output={"expected_function_calls": ["check"]},
)
SIGNED = {"parts": [{"thoughtSignature": "c2lnbmF0dXJl"}]}


class Live:
    """Stands in for a service: numbered calls, ids and signatures as a service has them."""

    name = "live"

    def __init__(self) -> None:
        self.requests: list[ModelRequest] = []

    async def turn(self, request: ModelRequest) -> ModelTurn:
        self.requests.append(request)
        usage = Usage(input_tokens=10, output_tokens=2, total_tokens=12)
        if request.messages[-1]["role"] == "user":
            call = ModelCall(name="check", arguments={"n": 1, "token": "tok-12345678"}, call_id="call_zufall")
            return ModelTurn(calls=(call,), finish_reason="tool_calls", usage=usage, content=SIGNED, duration_ms=812.6)
        return ModelTurn(text=f"Done {len(self.requests)}.\nBye.", usage=usage, model="gemini-x-001")

    async def aclose(self) -> None: ...


@pytest.fixture
def live() -> Iterator[Live]:
    service = Live()
    _shared_providers["gemini:x"] = service
    yield service
    del _shared_providers["gemini:x"]


@pytest.fixture
def run(tmp_path: Path, live: Live) -> Callable[..., Verdict]:
    def running(
        *,
        record: str | None = None,
        model: str | None = None,
        instruction: Instruction = INSTRUCTION,
        case: Case = CASE,
    ) -> Verdict:
        async def agent(task: Task) -> Any:
            return await task.run_instruction(instruction)

        model = "gemini:x" if record and model is None else model
        return run_case(case, agent, Settings(root=tmp_path, record=record, model=model or None))

    return running


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "mocks/cassettes/scenarios/s/case_001.yaml"


RECORDED = """\
# Recorded by evalkit. Record it again when the case's request changes: pytest --evalkit --evalkit-record=stale
evalkit_cassette: 1
model: gemini:x
turns:
  - request:
      fingerprint: {first}
      system: |-
        Be brief.
        Be kind.
      functions:
        - name: check
          description: Look up
          parameters:
            type: object
            properties:
              "n":
                type: integer
              token: {{}}
            required:
              - "n"
        - name: send
          parameters:
            type: object
            properties:
              to:
                type: string
      messages:
        - user: "My key is [redacted]."
    calls:
      - check:
          "n": 1
          token: tok-12345678
    usage:
      input_tokens: 10
      output_tokens: 2
      total_tokens: 12
    duration_ms: 813
  - request:
      fingerprint: {second}
      continues: true
      messages:
        - results:
            - check: 1
    text: |-
      Done 2.
      Bye.
    usage:
      input_tokens: 10
      output_tokens: 2
      total_tokens: 12
    model: gemini-x-001
    duration_ms: 0
"""


def fingerprints(text: str) -> list[str]:
    return [line.split(": ")[1].strip('"') for line in text.splitlines() if "fingerprint" in line]


def test_a_recording_is_readable_and_holds_no_secret_no_id_and_no_signature(
    run: Callable[..., Verdict], file: Path
) -> None:
    verdict = run(record="all")

    text = file.read_text(encoding="utf-8")
    first, second = fingerprints(text)
    assert text.replace(f'"{first}"', first).replace(f'"{second}"', second) == RECORDED.format(
        first=first, second=second
    )
    assert verdict.status == "passed"
    assert verdict.transcript.cassette is None
    assert list(file.parent.iterdir()) == [file]


def test_recording_twice_gives_the_same_file(run: Callable[..., Verdict], file: Path, live: Live) -> None:
    run(record="all")
    first = file.read_text()
    live.requests.clear()
    run(record="all")

    assert file.read_text() == first


def test_a_recording_replays_without_the_service(run: Callable[..., Verdict], live: Live) -> None:
    recorded = run(record="all")
    live.requests.clear()

    replayed = run()

    assert live.requests == []
    assert (replayed.status, replayed.transcript.cassette) == ("passed", "recorded")
    assert replayed.transcript.response == recorded.transcript.response
    assert replayed.transcript.usage == recorded.transcript.usage
    assert (replayed.transcript.timing and replayed.transcript.timing.model_ms) == 813

    assert replayed.transcript.calls[0].arguments == {"n": 1, "token": "tok-12345678"}  # a word of the model's


SECRET = "Tiger-of-1977"
SAYS = {"n": 1, "token": f"it is {SECRET}"}
STAND_IN = "redacted1xxxx"


def test_a_secret_that_the_model_says_has_a_stand_in_which_replay_matches(
    tmp_path: Path, live: Live, file: Path
) -> None:
    """The agent gets it, hands it to a function and back to the model, where it counts as the secret."""
    case = replace(
        CASE,
        input={"message": f"Use {SECRET}.", "mock_function_responses": {"check": "{ arguments.token }"}},
        expected_output={"response_contains": "Bye"},
    )

    async def ask(request: ModelRequest) -> ModelTurn:
        live.requests.append(request)
        if request.messages[-1]["role"] == "user":
            return ModelTurn(calls=(ModelCall(name="check", arguments=SAYS),), finish_reason="tool_calls")
        return ModelTurn(text="Bye.")

    live.turn = ask  # type: ignore[method-assign]

    async def agent(task: Task) -> Any:
        return await task.run_instruction(INSTRUCTION)

    def run(**settings: Any) -> Verdict:
        return run_case(case, agent, Settings(root=tmp_path, extra={"secrets": (SECRET,)}, **settings))

    recorded = run(record="all", model="gemini:x")
    text = file.read_text(encoding="utf-8")
    assert (recorded.status, SECRET in text, f"it is {STAND_IN}" in text) == ("passed", False, True)
    assert "redacted:\n  - check\n" in text
    assert any("a reply holds a secret (check)" in warning for warning in recorded.warnings)
    replayed = run()
    assert replayed.status == "passed", replayed.reasons
    assert replayed.transcript.calls[0].arguments == {"n": 1, "token": f"it is {STAND_IN}"}
    assert len(live.requests) == 2


def test_a_recording_of_an_older_evalkit_in_which_words_are_redacted_is_replayed(
    run: Callable[..., Verdict], file: Path, live: Live
) -> None:
    said = ModelCall(name="check", arguments={"n": 1, "token": "[redacted]"})
    replies = iter([ModelTurn(calls=(said,), finish_reason="tool_calls"), ModelTurn(text="Bye.")])

    async def ask(request: ModelRequest) -> ModelTurn:
        return next(replies)

    live.turn = ask  # type: ignore[method-assign]
    run(record="all")
    file.write_text(file.read_text().replace("turns:\n", "redacted:\n  - check\nturns:\n", 1))
    assert run().status == "passed"


def other(**changes: Any) -> Instruction:
    return replace(INSTRUCTION, **changes)


STALE: list[tuple[dict[str, Any], str]] = [
    (
        {"instruction": other(body="Be brief.\nBe very kind.")},
        "  the instruction changed:\n    line 2: - Be kind.\n    line 2: + Be very kind.",
    ),
    ({"instruction": other(available_functions=(CHECK,))}, "  function 'send' is no longer declared"),
    (
        {"instruction": other(available_functions=(replace(CHECK, description="Find"), SEND))},
        '  function \'check\' is declared differently: description was "Look up", is "Find"',
    ),
    (
        {"instruction": other(available_functions=(replace(CHECK, parameters={"type": "object"}), SEND))},
        "  function 'check' is declared differently: "
        'parameters.properties was {"n": {"type": "integer"}, "token": {}}, is absent; '
        'parameters.required was ["n"], is absent',
    ),
    (
        {"instruction": other(available_functions=(SEND, CHECK))},
        "  the functions are declared in another order: send, check",
    ),
    (
        {"case": replace(CASE, settings=CaseSettings(temperature=0.5))},
        "  settings: temperature was absent, is 0.5",
    ),
    (
        {"case": replace(CASE, input={**CASE.input, "message": "Hello"})},
        '  message 1 of the conversation changed: user was "My key is [redacted].", is "Hello"',
    ),
    (
        {"case": replace(CASE, settings=CaseSettings(model="gemini:y"))},
        "  the model was gemini:x, is gemini:y",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "explained"), STALE)
def test_a_recording_of_another_request_is_an_error_that_says_what_changed(
    run: Callable[..., Verdict], changes: dict[str, Any], explained: str
) -> None:
    run(record="all")

    verdict = run(**changes)

    assert (verdict.status, [reason.code for reason in verdict.reasons]) == ("error", ["stale_cassette"])
    assert verdict.reasons[0].message == (
        "mocks/cassettes/scenarios/s/case_001.yaml, turn 1, was recorded for another request:\n"
        f"{explained}\n"
        "Record it again: pytest --evalkit --evalkit-record=stale --evalkit-model=gemini:x"
    )


def test_a_model_at_an_address_of_its_own_is_kept_without_its_password_and_quoted(
    run: Callable[..., Verdict], file: Path, live: Live
) -> None:
    spec = "openai:m?base_url=https://bob:hunter2@host/v1&stream=1"
    at_home = replace(CASE, settings=CaseSettings(model=spec))
    _shared_providers[spec] = live
    try:
        run(record="all", model=spec)
        again, stale = run(case=at_home), run(case=replace(at_home, input={**CASE.input, "message": "Hello"}))
    finally:
        del _shared_providers[spec]

    assert "hunter2" not in file.read_text()
    assert again.reasons == ()
    assert stale.reasons[0].message.splitlines()[-1] == (
        "Record it again: pytest --evalkit --evalkit-record=stale "
        "'--evalkit-model=openai:m?base_url=https://bob:[redacted]@host/v1&stream=1'"
    )


def test_an_answer_that_changed_makes_the_next_turn_stale(run: Callable[..., Verdict]) -> None:
    run(record="all")
    mocks = {"check": {"status": "new"}, "send": 2}

    verdict = run(case=replace(CASE, input={**CASE.input, "mock_function_responses": mocks}))

    assert ", turn 2, was recorded for another request:\n  message 3 of the conversation changed: " in (
        verdict.reasons[0].message
    )
    assert 'results[0].check was 1, is {"status": "new"}' in verdict.reasons[0].message


def test_a_request_that_was_edited_by_hand_is_no_recording_any_more(run: Callable[..., Verdict], file: Path) -> None:
    run(record="all")
    file.write_text(file.read_text().replace(fingerprints(file.read_text())[0], "0123456789abcdef"))

    message = run().reasons[0].message

    assert "its 'request' was edited by hand: delete 'request' there to make the turn a hand-written one" in message


def test_missing_records_only_what_has_no_cassette(run: Callable[..., Verdict], live: Live) -> None:
    run(record="missing")
    assert len(live.requests) == 2

    replayed = run(record="missing")

    assert (len(live.requests), replayed.transcript.cassette) == (2, "recorded")
    assert run(record="missing", instruction=other(body="New.")).reasons[0].code == "stale_cassette"


def test_stale_records_again_what_no_longer_fits(run: Callable[..., Verdict], live: Live) -> None:
    run(record="stale")
    assert run(record="stale").transcript.cassette == "recorded"
    assert len(live.requests) == 2

    again = run(record="stale", instruction=other(body="New."))

    assert (again.status, len(live.requests)) == ("passed", 4)
    assert run(instruction=other(body="New.")).status == "passed"


@pytest.mark.parametrize("record", ["missing", "stale"])
def test_a_hand_written_cassette_is_replayed_and_kept(
    run: Callable[..., Verdict], live: Live, file: Path, record: str
) -> None:
    file.parent.mkdir(parents=True)
    file.write_text("turns: [{calls: [check: {n: 1}]}, Done.]\n")

    verdict = run(record=record)

    assert (verdict.status, verdict.transcript.cassette, live.requests) == ("passed", "hand-written", [])


def test_a_hand_written_cassette_is_never_recorded_over(run: Callable[..., Verdict], live: Live, file: Path) -> None:
    file.parent.mkdir(parents=True)
    file.write_text("turns: [Done.]\n")

    verdict = run(record="all")

    assert (verdict.status, file.read_text(), live.requests) == ("error", "turns: [Done.]\n", [])
    assert verdict.reasons[0].message == (
        "mocks/cassettes/scenarios/s/case_001.yaml is hand-written, and recording would overwrite it; "
        "move it away to record the case, or use --evalkit-record=missing to keep it"
    )


def test_each_repeat_has_a_recording_of_its_own(run: Callable[..., Verdict], file: Path) -> None:
    case = replace(CASE, repeat=Repeat(3, 3))
    run(record="all", case=case)

    replayed = run(case=case)

    assert sorted(path.name for path in file.parent.iterdir()) == [
        "case_001.run-2.yaml",
        "case_001.run-3.yaml",
        "case_001.yaml",
    ]
    assert [one.transcript.response for one in replayed.runs] == ["Done 2.\nBye.", "Done 4.\nBye.", "Done 6.\nBye."]


def test_a_run_that_could_not_be_measured_records_nothing(
    run: Callable[..., Verdict], live: Live, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from evalkit.errors import ProviderError

    async def failing(request: ModelRequest) -> ModelTurn:
        raise ProviderError("429", status=429)

    monkeypatch.setattr(live, "turn", failing)

    assert run(record="all").reasons[0].code == "provider_error"
    assert not file.exists()


def test_half_a_surrogate_pair_is_recorded_and_replayed_as_the_character_that_stands_for_none(
    run: Callable[..., Verdict], live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = ModelCall(name="check", arguments={"n": 1, "\ud83dkey": "half \ud83d, whole \ud83d\ude00"})
    replies = iter([ModelTurn(calls=(call,), finish_reason="tool_calls"), ModelTurn(text="Done \ud83d.")])

    async def turn(request: ModelRequest) -> ModelTurn:
        return next(replies)

    monkeypatch.setattr(live, "turn", turn)
    assert run(record="missing", model="gemini:x").transcript.stop_reason == "completed"
    replayed = run().transcript

    assert replayed.stop_reason == "completed"
    assert replayed.calls[0].arguments == {"n": 1, "\ufffdkey": "half \ufffd, whole 😀"}
    assert replayed.response == "Done \ufffd."


def test_a_recording_that_can_not_be_written_is_an_error_of_the_case(run: Callable[..., Verdict], file: Path) -> None:
    file.parent.parent.mkdir(parents=True)
    file.parent.write_text("no folder")
    verdict = run(record="missing", model="gemini:x")

    assert (verdict.status, verdict.reasons[0].code) == ("error", "missing_cassette")
    assert verdict.reasons[0].message.startswith("the recording can't be written: ")


def test_recording_without_a_model_says_so(run: Callable[..., Verdict]) -> None:
    verdict = run(record="all", model="")

    assert verdict.reasons[0].message == (
        "recording needs a model: --evalkit-model=gemini:MODEL, or settings.model in the case or its suite"
    )


def test_recording_uses_the_model_of_the_case(run: Callable[..., Verdict], live: Live) -> None:
    run(record="all", model="", case=replace(CASE, settings=CaseSettings(model="gemini:x")))

    assert len(live.requests) == 2


def test_an_option_model_goes_live_and_a_cases_model_does_not(run: Callable[..., Verdict], live: Live) -> None:
    assert run(model="gemini:x").status == "passed"
    assert len(live.requests) == 2

    offline = run(case=replace(CASE, settings=CaseSettings(model="gemini:x")))

    assert (offline.reasons[0].code, len(live.requests)) == ("missing_cassette", 2)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (Settings(record="al"), "record= is one of all, missing, stale, got 'al'"),
        (
            Settings(model="gemni:x"),
            f"unknown model 'gemni:x'; did you mean 'gemini'? A model is one of {KINDS}",
        ),
    ],
)
def test_settings_that_make_no_sense_are_usage_errors(settings: Settings, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        run_case(CASE, lambda task: "", settings)

    assert str(caught.value).startswith(message)
