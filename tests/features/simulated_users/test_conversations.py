"""Conversations with a simulated user: who plays it, when they end, what its mistakes are, and what it takes."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import evalkit
from evalkit.agents.model_choice import _shared_providers
from evalkit.agents.task import Task
from evalkit.errors import ProviderError
from evalkit.features.simulated_users.players import UserConversation
from evalkit.features.simulated_users.results import list_written, read_simulation
from evalkit.records.settings import Settings, derive_seed
from evalkit.records.transcript import ModelCall, ModelRequest, ModelTurn, Transcript, Usage
from evalkit.records.verdict import Verdict
from evalkit.runner.run_case import run_case
from evalkit.spec.load import load_case

MODEL = "gemini:user-x"
FACTS = {"serial_number": "SN48213"}
USER: dict[str, Any] = {"goal": "Have the drill repaired", "facts": FACTS, "stop_when": {"called": "create_ticket"}}
SCRIPT: dict[str, Any] = {
    "opening": "My drill is broken.",
    "script": [
        {"when": {"asks_for": "serial_number"}, "say": "{{ facts.serial_number }}"},
        {"when": {"called": "check"}, "say": "Yes, please."},
    ],
}
GOOD = ("My drill is broken.", "It says SN48213.", "Yes, please.")


class Speaker:
    """A model that plays the user: its messages in turn."""

    name = "gemini"

    def __init__(self, *said: str | ModelTurn | Exception) -> None:
        self._said = list(said)
        self.requests: list[ModelRequest] = []

    async def turn(self, request: ModelRequest) -> ModelTurn:
        self.requests.append(request)
        said = self._said[len(self.requests) - 1]
        if isinstance(said, Exception):
            raise said
        if isinstance(said, ModelTurn):
            return said
        usage = Usage(input_tokens=100, output_tokens=5, total_tokens=105)
        return ModelTurn(text=said, usage=usage, model="user-x-001", duration_ms=90_000.0)

    async def aclose(self) -> None: ...


def desk(task: Task) -> str:
    """Ask for the number, check it, and open a ticket on a yes."""
    if "SN" in task.message:
        task.call("check", number=task.message[-9:].strip(" ."))
        return "It is under warranty. Shall I open a ticket?"
    if "Yes" in task.message:
        return f"I opened {task.call('create_ticket')['id']}."
    return "What is the serial number?"


def build(user: dict[str, Any], expected: dict[str, Any] | None = None, **changes: Any) -> Any:
    mocks = {"check": {"status": "valid"}, "create_ticket": {"id": "T-77"}}
    expected = expected or {"expected_function_calls": ["check", "create_ticket"]}
    data = {
        "input": {"user": user, "mock_function_responses": mocks, **changes.pop("input", {})},
        "expected_output": expected,
        **changes,
    }
    return evalkit.case_from_dict(data)


def run(user: dict[str, Any], *said: Any, agent: Any = desk, **changes: Any) -> Verdict:
    extra = {"simulator": lambda case_id, run: Speaker(*said)} if said else {}
    settings = Settings(extra=extra, prices={"user-x-001": {"input": 1.0, "output": 2.0}})
    return run_case(build(user, **changes), agent, settings)


def get_said(transcript: Transcript) -> list[str]:
    return [message.text for message in transcript.messages]


def get_code(verdict: Verdict) -> tuple[str, str]:
    return verdict.status, verdict.reasons[0].code if verdict.reasons else ""


# ---- the conversation


def test_a_script_answers_until_the_rule_holds() -> None:
    verdict = run({**USER, **SCRIPT})
    assert get_code(verdict) == ("passed", "")
    assert get_said(verdict.transcript) == ["My drill is broken.", "SN48213", "Yes, please."]
    assert verdict.transcript.responses[-1] == verdict.transcript.response == "I opened T-77."
    assert [call.user_turn for call in verdict.transcript.calls] == [1, 2]
    simulation = read_simulation(verdict.transcript)
    assert (simulation.player, simulation.ended_by, simulation.model) == ("script", "rule", None)
    assert Transcript.from_json(verdict.transcript.to_json()) == verdict.transcript


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"max_tokens": 10**6, "max_cost_usd": 1}, ""),
        ({"max_tokens": 1}, r"the simulated user, message 2: max_tokens took \d+, more than 1$"),
        ({"max_cost_usd": 0.0000001}, r"message 2: max_cost_usd took \S+, more than 1e-07$"),
    ],
)
def test_the_model_that_plays_the_user_may_be_limited(limits: dict[str, Any], message: str) -> None:
    verdict = run({**USER, "opening": "My drill is broken.", **limits}, "It is SN48213.", "Yes, please.", "[DONE]")
    assert get_code(verdict) == (("error", "simulator_over_budget") if message else ("passed", ""))
    assert re.search(message, verdict.summary)
    if message:
        assert read_simulation(verdict.transcript).last_words is not None


def test_a_limit_that_nobody_can_hold_is_no_pass_and_a_script_has_none() -> None:
    user = {**USER, "opening": "My drill is broken.", "max_cost_usd": 1}
    said = ("It is SN48213.", "Yes, please.", "[DONE]")
    settings = Settings(extra={"simulator": lambda case_id, run: Speaker(*said)})  # without prices
    verdict = run_case(build(user), desk, settings)
    assert get_code(verdict) == ("error", "simulator_over_budget")
    assert "max_cost_usd can't be held: what its model takes is not known" in verdict.summary
    with pytest.raises(evalkit.SpecError, match="'max_tokens' limits a model that plays the user, and 'script' asks"):
        build({**USER, **SCRIPT, "max_tokens": 5})


def test_one_of_several_phrases_of_the_agent_will_do() -> None:
    branches = [
        {"when": {"agent_says": ["which number", "serial number"]}, "say": "SN48213"},
        {"when": {"agent_says": ["shall I", "may I"]}, "say": "Yes, please."},
    ]
    user = {**USER, **SCRIPT, "script": branches, "stop_when": {"agent_says": ["I opened", "I refused"]}}
    verdict = run(user)
    assert get_code(verdict) == ("passed", "")
    assert get_said(verdict.transcript) == ["My drill is broken.", "SN48213", "Yes, please."]
    for words in ([], ["", "x"], ["x", 5]):
        with pytest.raises(evalkit.SpecError, match="agent_says must be text, a list of texts or an operator, got"):
            build({**user, "stop_when": {"agent_says": words}})


def test_a_model_plays_the_user_and_its_use_is_its_own() -> None:
    verdict = run(USER, *GOOD)
    assert get_code(verdict) == ("passed", "")
    messages = verdict.transcript.messages
    assert [message.text for message in list_written(verdict.transcript)] == list(GOOD)
    assert all(message.usage and message.cost_usd == pytest.approx(0.00011) for message in messages)
    assert (verdict.transcript.usage, verdict.transcript.cost_usd, verdict.transcript.turns) == (None, None, ())
    assert verdict.transcript.timing is not None
    assert verdict.transcript.timing.model_ms == 0  # the user's 90 s are no time of the agent's, and no deadline


def test_the_model_sees_the_conversation_from_the_other_side() -> None:
    speaker = Speaker(*GOOD)
    run_case(build({**USER, "persona": "Short-spoken"}), desk, Settings(extra={"simulator": lambda *_: speaker}))
    last = speaker.requests[-1]
    assert [message["role"] for message in last.messages] == ["user", "model", "user", "model", "user"]
    assert last.messages[-1]["text"] == "It is under warranty. Shall I open a ticket?"
    system = str(last.system)
    assert all(
        text in system for text in ("Have the drill repaired", "Short-spoken", "serial number: SN48213", "[DONE]")
    )


def test_the_agent_sees_nothing_of_the_user_but_what_it_says() -> None:
    seen: list[Any] = []

    def look(task: Task) -> str:
        seen.append((dict(task.input), [message.get("text") for message in task.messages if "text" in message]))
        return desk(task)

    run({**USER, **SCRIPT}, agent=look, input={"context": {"shop": 1}})
    assert seen[0] == ({"context": {"shop": 1}}, ["My drill is broken."])
    assert seen[1][1] == ["My drill is broken.", "SN48213"]


def test_facts_are_no_knowledge_before_they_are_told() -> None:
    def guess(task: Task) -> str:
        task.call("check", number="SN48213")
        return str(task.call("create_ticket"))

    verdict = run({**USER, **SCRIPT}, agent=guess, expected={"grounded": True})
    assert get_code(verdict) == ("failed", "ungrounded_argument")
    told = run({**USER, **SCRIPT}, expected={"grounded": True})
    assert get_code(told) == ("passed", "")


def test_the_phrase_ends_the_conversation() -> None:
    user = {"goal": "Ask", "stop_when": "bye now"}
    verdict = run(user, "What is a drill?", "Thanks, BYE NOW.", expected={"expected_function_calls": []})
    simulation = read_simulation(verdict.transcript)
    assert get_code(verdict) == ("passed", "")
    assert (get_said(verdict.transcript), simulation.ended_by) == (["What is a drill?"], "user")
    assert simulation.last_words is not None
    assert simulation.last_words.text == "Thanks, BYE NOW."


def test_a_branch_may_end_it_and_be_taken_a_few_times() -> None:
    branches = [{"say": "Why?", "times": 2}, {"when": {"agent_says": {"$search": "number"}}, "stop": True}]
    user = {"goal": "Ask", "opening": "Hi", "script": branches}
    verdict = run(user, expected={"expected_function_calls": []})
    assert get_code(verdict) == ("passed", "")
    assert get_said(verdict.transcript) == ["Hi", "Why?", "Why?"]


def test_a_script_without_an_answer_is_no_failure_of_the_agent() -> None:
    verdict = run({**USER, "opening": "Hi", "script": [{"when": {"called": "check"}, "say": "ok"}]})
    assert get_code(verdict) == ("error", "simulator_no_branch")
    assert verdict.reasons[0].message == (
        "the simulated user's script has no branch that fits the agent's answer 'What is the serial number?'; add one, "
        "or a last one without 'when'"
    )


def test_the_state_can_end_it() -> None:
    state = {
        "state": {"tickets": 0},
        "mock_function_responses": {"check": {}, "create_ticket": {"$set": {"tickets": 1}, "$return": 1}},
    }
    user = {**USER, **SCRIPT, "stop_when": {"state": {"tickets": 1}}}

    def open_ticket(task: Task) -> str:
        task.call("create_ticket")
        return "Done"

    verdict = run(user, agent=open_ticket, input=state, expected={"state_contains": {"tickets": 1}})
    assert get_code(verdict) == ("passed", "")
    assert len(get_said(verdict.transcript)) == 1


def test_max_turns_is_the_agents_failure() -> None:
    def stubborn(task: Task) -> str:
        return "What is the serial number?"

    verdict = run({**USER, **SCRIPT, "max_turns": 3}, agent=stubborn, expected={"response_contains": "number"})
    assert get_code(verdict) == ("failed", "conversation_not_ended")
    assert verdict.reasons[0].message == (
        "the conversation did not come to its end within 3 messages of the user (max_turns); this did not hold: "
        'called: "create_ticket"'
    )
    allowed = run(
        {**USER, **SCRIPT, "max_turns": 3, "max_turns_ok": True},
        agent=stubborn,
        expected={"response_contains": "number"},
    )
    assert get_code(allowed) == ("passed", "")
    expected = {"stop_reason": "conversation_not_ended"}
    assert get_code(run({**USER, **SCRIPT}, agent=stubborn, expected=expected)) == ("passed", "")


def test_a_model_that_never_ends_it_says_nothing_of_the_agent() -> None:
    user = {"goal": "Chat", "max_turns": 2}
    said = ("Hello", "What else?", "And then?")
    verdict = run(user, *said, expected={"expected_function_calls": []})
    assert get_code(verdict) == ("error", "simulator_never_stopped")
    failed = run(user, *said, expected={"expected_function_calls": ["check"]})
    assert get_code(failed) == ("failed", "missing_call")


# ---- mistakes


@pytest.mark.parametrize(
    ("said", "code", "message"),
    [
        (
            ["How can I help you?"],
            "simulator_left_role",
            "the simulated user, message 1, left its role and spoke as the assistant (it offers help): "
            '"How can I help you?"',
        ),
        (
            ["Hi", "It says SN11111."],
            "simulator_invented_fact",
            'the simulated user, message 2, told "sn11111", which is not one of its facts and was not said '
            'before: "It says SN11111."',
        ),
        (
            ["Hi", "[DONE]"],
            "simulator_stopped_early",
            "the simulated user, message 2, ended the conversation, and this does not hold yet: "
            'called: "create_ticket"',
        ),
        (
            ["[DONE]"],
            "simulator_stopped_early",
            "the simulated user ended the conversation before it asked for anything",
        ),
        ([""], "simulator_silent", "the simulated user, message 1, said nothing"),
        (
            ['<function>{"name": "check", "parameters": {}}</function>'],
            "simulator_left_role",
            "the simulated user, message 1, called a function, which users do not do: "
            '"<function>{\\"name\\": \\"check\\", \\"parameters\\": {}}</function>"',
        ),
        (
            [ModelTurn(calls=(ModelCall(name="check", arguments={}),), finish_reason="tool_calls")],
            "simulator_silent",
            None,
        ),
        (
            [ModelTurn(text="so", finish_reason="length")],
            "simulator_cut_off",
            "the simulated user's model did not stop within 1,000 tokens; an option of its name allows more: "
            "KIND:MODEL?max_output_tokens=4000",
        ),
        ([ProviderError("429")], "provider_error", "429"),
        ([KeyError("x")], "provider_error", "the simulated user's model raised KeyError: 'x'"),
        (
            [ModelTurn(finish_reason="content_filter")],
            "provider_error",
            "the simulated user's model gave no answer: it ended with 'content_filter'",
        ),
    ],
)
def test_mistakes_and_faults_are_errors(said: list[Any], code: str, message: str | None) -> None:
    verdict = run(USER, *said)
    assert get_code(verdict) == ("error", code)
    assert message is None or verdict.reasons[0].message == message


def test_what_is_around_a_message_is_taken_off() -> None:
    said = ("<think>I need help.</think>\nUser: My drill is broken.", '"It says SN48213."', "Yes, please.")
    assert get_said(run(USER, *said).transcript) == list(GOOD)


def test_the_fault_of_the_agent_counts_before_the_users() -> None:
    def broken(task: Task) -> str:
        raise KeyError("x")

    assert get_code(run(USER, *GOOD, agent=broken)) == ("failed", "agent_raised")


# ---- callables


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType("shop_users")
    monkeypatch.setitem(sys.modules, "shop_users", module)
    return module


def play(module: ModuleType, function: Callable[[UserConversation], Any], **changes: Any) -> Verdict:
    module.answer = function  # type: ignore[attr-defined]
    return run({**USER, "call": "shop_users:answer", **changes})


def test_a_callable_plays_the_user(module: ModuleType) -> None:
    seen: list[UserConversation] = []

    def answer(conversation: UserConversation) -> str:
        seen.append(conversation)
        conversation.state["n"] = conversation.state.get("n", -1) + 1
        return GOOD[conversation.state["n"]]

    assert get_code(play(module, answer)) == ("passed", "")
    assert seen[-1].messages[-1] == {"role": "agent", "text": "It is under warranty. Shall I open a ticket?"}
    assert [call["name"] for call in seen[-1].calls] == ["check"]
    assert seen[0].facts == FACTS


def test_a_callable_that_changes_what_it_sees_changes_no_record(module: ModuleType) -> None:
    def answer(conversation: UserConversation) -> str:
        for call in conversation.calls:
            call["arguments"].clear()
        conversation.facts.clear()
        return GOOD[len(conversation.messages) // 2]

    verdict = play(module, answer)
    assert get_code(verdict) == ("passed", "")
    assert verdict.transcript.calls[0].arguments == {"number": "SN48213"}


def test_an_async_callable_too(module: ModuleType) -> None:
    async def answer(conversation: UserConversation) -> str:
        return GOOD[len(conversation.messages) // 2]

    assert get_code(play(module, answer)) == ("passed", "")


@pytest.mark.parametrize(
    ("answer", "code", "message"),
    [
        (lambda _: 1 / 0, "simulator_raised", "shop_users:answer, raised ZeroDivisionError: division by zero"),
        (lambda _: 5, "simulator_raised", "returned a value of type int; it returns what the user says, or None"),
        (lambda talk: "Hi" if not talk.messages else None, "simulator_stopped_early", "this does not hold yet"),
        (lambda _: "I am SN555", "simulator_invented_fact", "sn555"),
    ],
)
def test_mistakes_of_a_callable(module: ModuleType, answer: Any, code: str, message: str) -> None:
    verdict = play(module, answer)
    assert get_code(verdict) == ("error", code)
    assert message in verdict.reasons[0].message


# ---- recording and replay


@pytest.fixture
def speaker(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Speaker]:
    def use(*said: Any) -> Speaker:
        speaker = Speaker(*said)
        monkeypatch.setitem(_shared_providers, MODEL, speaker)
        return speaker

    return use


def run_in(root: Path, user: dict[str, Any] = USER, repeat: int = 1, agent: Any = desk, **settings: Any) -> Verdict:
    path = root / "scenarios" / "desk_001.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(
        json.dumps(
            {
                "input": {
                    "user": user,
                    "mock_function_responses": {"check": {"s": 1}, "create_ticket": {"id": "T-77"}},
                },
                "expected_output": {"expected_function_calls": ["check", "create_ticket"]},
                "repeat": repeat,
            }
        )
    )
    return run_case(load_case(path, root=root), agent, Settings(root=root, **settings))


CASSETTE = "mocks/cassettes/scenarios/desk_001.user.yaml"


def test_a_recorded_user_answers_again(tmp_path: Path, speaker: Callable[..., Speaker]) -> None:
    speaker(*GOOD)
    assert get_code(run_in(tmp_path, simulator=MODEL, record="missing")) == ("passed", "")
    assert "model: gemini:user-x" in (tmp_path / CASSETTE).read_text()
    speaker()  # nobody is asked
    verdict = run_in(tmp_path)
    simulation = read_simulation(verdict.transcript)
    assert get_code(verdict) == ("passed", "")
    assert (simulation.model, simulation.cassette) == (MODEL, "recorded")
    assert verdict.transcript.messages[0].usage is not None
    assert verdict.transcript.cassette is None  # the agent has no model


def test_another_answer_of_the_agent_makes_the_recording_stale(tmp_path: Path, speaker: Callable[..., Speaker]) -> None:
    speaker(*GOOD)
    run_in(tmp_path, simulator=MODEL, record="missing")

    def other(task: Task) -> str:
        return desk(task).replace("What is", "Which is")

    verdict = run_in(tmp_path, agent=other)
    assert get_code(verdict) == ("error", "stale_cassette")
    assert f"{CASSETTE}, turn 2, was recorded for another request" in verdict.reasons[0].message
    assert "--evalkit-record=stale --evalkit-simulator=gemini:user-x" in verdict.reasons[0].message
    speaker(*GOOD)
    assert get_code(run_in(tmp_path, agent=other, simulator=MODEL, record="stale")) == ("passed", "")
    assert get_code(run_in(tmp_path, agent=other)) == ("passed", "")


def test_a_mistake_is_not_recorded(tmp_path: Path, speaker: Callable[..., Speaker]) -> None:
    speaker("How can I help you?")
    assert get_code(run_in(tmp_path, simulator=MODEL, record="missing")) == ("error", "simulator_left_role")
    assert not (tmp_path / CASSETTE).exists()


def test_without_a_recording_nothing_is_sent_offline(tmp_path: Path, speaker: Callable[..., Speaker]) -> None:
    asked = speaker(*GOOD)
    verdict = run_in(tmp_path, user={**USER, "model": MODEL})
    assert get_code(verdict) == ("error", "missing_cassette")
    assert verdict.reasons[0].message == (
        f"no recording of the simulated user: {CASSETTE} does not exist\n"
        "Record it: pytest --evalkit --evalkit-record=missing --evalkit-simulator=gemini:MODEL\n"
        "or write its messages there by hand:\n    turns:\n      - text: what the user says first"
    )
    assert asked.requests == []
    assert get_code(run_in(tmp_path, user={**USER, "model": MODEL}, record="missing")) == ("passed", "")


def test_an_option_asks_a_model_where_nothing_is_recorded(tmp_path: Path, speaker: Callable[..., Speaker]) -> None:
    speaker(*GOOD)
    assert get_code(run_in(tmp_path, simulator=MODEL)) == ("passed", "")
    assert not (tmp_path / CASSETTE).exists()


def test_a_live_run_needs_a_live_user(tmp_path: Path, speaker: Callable[..., Speaker]) -> None:
    speaker(*GOOD)
    run_in(tmp_path, simulator=MODEL, record="missing")
    verdict = run_in(tmp_path, model=MODEL)
    assert get_code(verdict) == ("error", "not_measured")
    assert "--evalkit-simulator=gemini:MODEL, or input.user.model" in verdict.reasons[0].message


def test_a_hand_written_user_serves_all_runs(tmp_path: Path) -> None:
    (tmp_path / CASSETTE).parent.mkdir(parents=True)
    (tmp_path / CASSETTE).write_text("turns:\n" + "".join(f"  - text: {text}\n" for text in GOOD))
    verdict = run_in(tmp_path, repeat=2)
    assert [run.status for run in verdict.runs] == ["passed", "passed"]
    simulation = read_simulation(verdict.transcript)
    assert (simulation.model, simulation.cassette) == (None, "hand-written")


def test_a_recording_that_ends_says_what_the_user_was_asked(tmp_path: Path) -> None:
    (tmp_path / CASSETTE).parent.mkdir(parents=True)
    (tmp_path / CASSETTE).write_text(f"turns:\n  - text: {GOOD[0]}\n")
    verdict = run_in(tmp_path)
    assert get_code(verdict) == ("error", "missing_cassette")
    assert verdict.reasons[0].message.startswith(
        f"{CASSETTE} has 1 turn, and the simulated user asked for turn 2 (after the message"
    )


def test_each_repetition_has_a_recording_and_a_seed_of_its_own(tmp_path: Path, speaker: Callable[..., Speaker]) -> None:
    asked = speaker(*GOOD, *GOOD)
    assert get_code(run_in(tmp_path, repeat=2, simulator=MODEL, record="missing", seed=7)) == ("passed", "")
    assert (tmp_path / CASSETTE.replace(".user", ".run-2.user")).exists()
    seeds = [derive_seed(run_seed, "user") for run_seed in (7, derive_seed(7, "run 2"))]
    assert [request.seed for request in asked.requests] == [*[seeds[0]] * 3, *[seeds[1]] * 3]
    assert get_code(run_in(tmp_path, repeat=2)) == ("passed", "")


def test_budgets_count_the_user(tmp_path: Path, speaker: Callable[..., Speaker]) -> None:
    speaker(*GOOD)
    verdict = run_in(tmp_path, simulator=MODEL, max_tokens=150 + len(str(tmp_path)) % 7)
    assert get_code(verdict) == ("not_run", "budget")


# ---- who else reads the conversation


def test_a_policy_reads_what_the_user_said(tmp_path: Path) -> None:
    path = tmp_path / "scenarios" / "policies.yaml"
    path.parent.mkdir()
    path.write_text('confirmed: {never: create_ticket, before: {user: "yes"}}\n')
    assert get_code(run_in(tmp_path, user={**USER, **SCRIPT})) == ("passed", "")

    def hasty(task: Task) -> str:
        reply = desk(task)
        return f"{reply} {task.call('create_ticket')}" if "SN" in task.message else reply

    assert get_code(run_in(tmp_path, user={**USER, **SCRIPT}, agent=hasty)) == ("failed", "policy_broken")


def test_a_grader_reads_the_whole_conversation() -> None:
    documents: list[str] = []

    class Judge(Speaker):
        async def turn(self, request: ModelRequest) -> ModelTurn:
            documents.append(request.messages[0]["text"])
            return ModelTurn(text='{"grades": [{"criterion": 1, "pass": true, "quotes": [], "reason": "so"}]}')

    case = build({**USER, **SCRIPT}, {"judge": ["The desk is polite."]})
    verdict = run_case(case, desk, Settings(extra={"grader": lambda *_: Judge()}))
    assert get_code(verdict) == ("passed", "")
    assert '"user": "Yes, please."' in documents[0]
    assert "SN48213" in documents[0]


def test_the_conversation_is_for_all_kinds_of_agents() -> None:
    """An async agent, and the loop of an instruction file over the model's turns."""

    async def answer(task: Task) -> str:
        return str((await task.turn(ModelRequest(messages=tuple(task.messages)))).text)

    said: Sequence[ModelTurn] = [ModelTurn(text="What is the serial number?"), ModelTurn(text="ok")]
    case = build({**USER, **SCRIPT, "stop_when": {"agent_says": "ok"}}, {"expected_function_calls": []})
    settings = Settings(extra={"provider": lambda *_: evalkit.ScriptedProvider(said)})
    verdict = run_case(case, answer, settings)
    assert get_code(verdict) == ("passed", "")
    assert len(verdict.transcript.turns) == 2
