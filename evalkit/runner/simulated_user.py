"""A conversation with a simulated user: who plays it, when it ends, and what is said of its mistakes.

A mistake of the user, a script that has no answer, a callable that raises and a model that fails end the run as one
that could not be measured. A conversation that does not come to its end is the agent's failure, if a rule, a script or
a callable says what the end is; whether a model should have ended it by itself nobody knows.
"""

from __future__ import annotations

import asyncio
import inspect
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence

from msgspec import Struct, convert
from msgspec.structs import replace

from evalkit.agents.user_model import ROLE, UserModel, build_instruction, has_calls, select_user_model
from evalkit.checks.evidence import Evidence
from evalkit.checks.expectation import Judgement, format_summary
from evalkit.checks.reasons import build_reason
from evalkit.checks.simulated_user import SimulatedUser, UserCondition, format_fact, get_user
from evalkit.checks.user_mistakes import STOPPED_EARLY, find_mistake
from evalkit.errors import EvalkitError, IncompleteTraceError, SimulatorError
from evalkit.functions.targets import TargetError, find_callable
from evalkit.jsonvalue import JsonDict, copy_json, to_json_safe
from evalkit.records.case import Case
from evalkit.records.template import TemplateError
from evalkit.records.transcript import ModelTurn, RunFault, Simulation, Transcript, UserMessage
from evalkit.records.verdict import ERROR, PASSED
from evalkit.runner.run_state import RunState
from evalkit.text.format import format_count

NO_BRANCH = "simulator_no_branch"
RAISED = "simulator_raised"
NEVER_STOPPED = "simulator_never_stopped"
OVER_BUDGET = "simulator_over_budget"
NOT_ENDED = "conversation_not_ended"
RULE, USER, MAX_TURNS = "rule", "user", "max_turns"

Exchanges = Sequence[tuple[str, str]]


class UserConversation(Struct):
    """A conversation, as a callable that plays the user sees it.

    `messages` are ``{"role": "user" | "agent", "text"}``, `calls` what the agent has called so far: ``{"name",
    "arguments", "result", "outcome"}``. `state` is a dictionary for the callable's own use, for as long as the run.
    """

    goal: str
    persona: str
    facts: JsonDict
    messages: list[JsonDict]
    calls: list[JsonDict]
    state: JsonDict


class Answer(Struct, frozen=True):
    """What the user says next. `reply`: of a model, what it was read from."""

    message: UserMessage
    is_end: bool = False
    reply: ModelTurn | None = None


class UserPlayer(ABC):
    """Who plays the user. `is_trusted`: what it says is the author's word, and no mistake is looked for."""

    model: str | None = None
    cassette: str | None = None
    is_trusted = False

    @abstractmethod
    async def answer(self, exchanges: Exchanges) -> Answer:
        """Return what the user says after `exchanges`: its messages, each with the agent's reply."""

    def save(self) -> None:  # noqa: B027 - only a model is recorded
        """Write the recording, if there is one."""


class Script(UserPlayer):
    """Plays the user by the branches of the case."""

    is_trusted = True

    def __init__(self, user: SimulatedUser, run: RunState) -> None:
        self._user = user
        self._run = run
        self._taken = [0] * len(user.script)

    async def answer(self, exchanges: Exchanges) -> Answer:
        for number, branch in enumerate(self._user.script):
            if branch.times is not None and self._taken[number] >= branch.times:
                continue
            if branch.condition is None or holds(branch.condition, self._run, exchanges, is_latest=True):
                self._taken[number] += 1
                text = self._user.fill_facts(branch.say)
                return Answer(UserMessage(text=text), branch.is_end or self._user.says_end(text))
        reply = exchanges[-1][1]
        message = f"{ROLE}'s script has no branch that fits the agent's answer {reply!r}; "
        raise SimulatorError(NO_BRANCH, f"{message}add one, or a last one without 'when'")


class CallablePlayer(UserPlayer):
    """Plays the user by a Python callable, which gets a `UserConversation` and returns what the user says."""

    def __init__(self, user: SimulatedUser, run: RunState) -> None:
        self._user = user
        self._run = run
        self._target = user.call or ""
        self._state: JsonDict = {}

    async def answer(self, exchanges: Exchanges) -> Answer:
        roles = (("user", 0), ("agent", 1))
        conversation = UserConversation(
            goal=self._user.goal,
            persona=self._user.persona,
            facts=copy_json(dict(self._user.facts)),
            messages=[{"role": role, "text": exchange[place]} for exchange in exchanges for role, place in roles],
            calls=[
                copy_json(
                    {"name": call.name, "arguments": call.arguments, "result": call.result, "outcome": call.outcome}
                )
                for call in self._run.dispatcher.calls
            ],
            state=self._state,
        )
        said = await self._call(conversation)
        if said is not None and not isinstance(said, str):
            text = f"returned a value of type {type(said).__name__}; it returns what the user says, or None at the end"
            raise SimulatorError(RAISED, f"{ROLE}, {self._target}, {text}")
        return Answer(UserMessage(text=said or ""), said is None or self._user.says_end(said))

    async def _call(self, conversation: UserConversation) -> object:
        limit_s = self._run.plan.task_settings.deadline_s
        limit = asyncio.timeout(limit_s)
        try:
            function = find_callable(self._target, "shop.users:answer", self._run.plan.case.permissions)
            if not callable(function):
                raise TargetError(f"'{self._target}' is not callable")
            async with limit:
                said = await asyncio.to_thread(function, conversation)
                return await said if inspect.isawaitable(said) else said
        except TargetError as error:  # it existed when the case was loaded; in a worker process it may be missing
            raise SimulatorError(RAISED, f"{ROLE}: {error}") from error
        except Exception as error:
            late = f"was still running after {limit_s:g} s" if limit.expired() else ""
            text = late or f"raised {type(error).__name__}: {error}"
            raise SimulatorError(RAISED, f"{ROLE}, {self._target}, {text}") from error


class ModelPlayer(UserPlayer):
    """Plays the user by a model, or by its recording."""

    def __init__(self, user: SimulatedUser, run: RunState, model: UserModel) -> None:
        self.model = model.model
        self.cassette = model.cassette
        self._user = user
        self._plan = run.plan
        self._model = model
        facts = {name: format_fact(value) for name, value in user.facts.items()}
        self._instruction = build_instruction(user.goal, user.persona, facts, user.phrase)

    async def answer(self, exchanges: Exchanges) -> Answer:
        plan = self._plan
        message, reply = await self._model.answer(
            self._instruction, exchanges, plan.settings, plan.task_settings.deadline_s
        )
        return Answer(message, self._user.says_end(message.text), reply)

    def save(self) -> None:
        self._model.save()


def choose_player(user: SimulatedUser, run: RunState) -> UserPlayer:
    """Return who plays the user in this run. Raises as `select_user_model` does."""
    if user.script:
        return Script(user, run)
    if user.call is not None:
        return CallablePlayer(user, run)
    plan = run.plan
    return ModelPlayer(user, run, select_user_model(plan.case.id, run.task.run_index, plan.settings, user.model))


async def run_simulated_conversation(run: RunState, run_turn: Callable[[int, str], Awaitable[bool]]) -> None:
    """Let the case's simulated user and the agent talk in turns. `run_turn` has the agent answer; false: the run has
    ended with it."""
    user = get_user(run.plan.case)
    assert user is not None
    run.simulation = Simulation(player=user.player)
    try:
        if run.plan.agent.is_recorded:
            raise IncompleteTraceError(
                "a simulated user (input.user) talks with an agent that answers, and a trace does not: write what the "
                "user said there as input.turns"
            )
        run.player = player = choose_player(user, run)
        run.simulation = replace(run.simulation, model=player.model, cassette=player.cassette)
        await _Conversation(run, user, player).go_on(run_turn)
    except EvalkitError as error:
        run.task.record_fault(error)


class _Conversation:
    """One conversation while it is under way."""

    def __init__(self, run: RunState, user: SimulatedUser, player: UserPlayer) -> None:
        self._run = run
        self._user = user
        self._player = player
        self._exchanges: list[tuple[str, str]] = []

    async def go_on(self, run_turn: Callable[[int, str], Awaitable[bool]]) -> None:
        """Let both talk until the end."""
        for index in range(self._user.max_turns):
            message = await self._get_message()
            if message is None:
                self._end(USER)
                return
            self._run.messages.append(message)
            if not await run_turn(index, message.text):
                return
            self._exchanges.append((message.text, self._run.replies[-1].text))
            if self._user.end is not None and holds(self._user.end, self._run, self._exchanges):
                self._end(RULE)
                return
        # Without a rule the user has the last word: it may be content with the last answer.
        if self._user.end is None and await self._get_message() is None:
            self._end(USER)
            return
        self._end(MAX_TURNS)

    @property
    def _simulation(self) -> Simulation:
        assert self._run.simulation is not None
        return self._run.simulation

    def _update(self, **changes: object) -> None:
        self._run.simulation = replace(self._simulation, **changes)

    def _end(self, ended_by: str) -> None:
        self._update(ended_by=ended_by)
        if ended_by == MAX_TURNS and not self._user.max_turns_ok and not is_open_to_model(self._user):
            self._run.unended = build_end_fault(self._user)

    async def _get_message(self) -> UserMessage | None:
        """Return the user's next message; None if it ends the conversation. Raises SimulatorError for a mistake."""
        user, run = self._user, self._run
        if not self._exchanges and user.opening is not None:
            return UserMessage(text=user.fill_facts(user.opening))
        with run.task.queueing_time.measure(), run.task.waiting_time.measure():  # no time of the agent's
            answer = await self._player.answer(self._exchanges)
        self._check_limits(answer.message)
        number = len(self._exchanges) + 1
        if answer.is_end:
            self._update(last_words=answer.message)
            if not self._player.is_trusted and not self._exchanges:
                raise SimulatorError(STOPPED_EARLY, f"{ROLE} ended the conversation before it asked for anything")
            if not self._player.is_trusted and user.end is not None:
                text = f"{ROLE}, message {number}, ended the conversation, and this does not hold yet: {user.end.text}"
                raise SimulatorError(STOPPED_EARLY, text)
            return None
        if self._player.is_trusted:
            return answer.message
        is_calling = has_calls(answer.message.text, answer.reply, run.dispatcher.declarations)
        mistake = find_mistake(answer.message.text, user, self._exchanges, has_calls=is_calling)
        if mistake is not None:
            self._update(last_words=answer.message)
            raise SimulatorError(mistake.code, f"{ROLE}, message {number}, {mistake.text}")
        return answer.message

    def _check_limits(self, message: UserMessage) -> None:
        """Raise SimulatorError if the model that plays the user has taken more than it may, up to this message."""
        user = self._user
        if user.max_tokens is None and user.max_cost_usd is None:
            return
        written = [said for said in (*self._run.messages, message) if said.is_written]
        tokens = [None if each.usage is None else each.usage.count_tokens() for each in written]
        limits: list[tuple[str, float | None, Sequence[float | None]]] = [
            ("max_tokens", user.max_tokens, tokens),
            ("max_cost_usd", user.max_cost_usd, [each.cost_usd for each in written]),
        ]
        for key, limit, amounts in limits:
            known = sum(amount for amount in amounts if amount is not None)
            problem = f"took {known:g}, more than {limit:g}" if limit is not None and known > limit else ""
            if limit is not None and None in amounts and self._player.cassette is None:
                problem = "can't be held: what its model takes is not known (a service without usage, or no price)"
            if problem:
                self._update(last_words=message)
                raise SimulatorError(OVER_BUDGET, f"{ROLE}, message {len(self._exchanges) + 1}: {key} {problem}")


def holds(condition: UserCondition, run: RunState, exchanges: Exchanges, *, is_latest: bool = False) -> bool:
    """Return whether a condition holds of what the agent has done; `is_latest`: of its latest turn alone."""
    calls = run.dispatcher.calls
    latest = tuple(call for call in calls if call.user_turn == len(exchanges) - 1)
    state = to_json_safe(run.dispatcher.state)[0]
    transcript = Transcript(
        input=run.task.input, calls=latest if is_latest else calls, response=exchanges[-1][1], state=state
    )
    aliases = {alias: function.name for function in run.dispatcher.declarations for alias in function.aliases}
    try:
        return condition.holds(Evidence(transcript, run.plan.case.input, "run", calls, aliases))
    except TemplateError:  # what it refers to has not happened yet
        return False


def build_end_fault(user: SimulatedUser) -> RunFault:
    """Return the fault of a conversation that came to no end although it should have."""
    turns = f"{format_count(user.max_turns, 'message')} of the user (max_turns)"
    waited = f"; this did not hold: {user.end.text}" if user.end is not None else ""
    return RunFault(code=NOT_ENDED, message=f"the conversation did not come to its end within {turns}{waited}")


def is_open_to_model(user: SimulatedUser) -> bool:
    """Return whether a model alone says when the conversation ends."""
    return user.player == "model" and user.end is None


def require_end(case: Case, transcript: Transcript, judgement: Judgement) -> Judgement:
    """Return the judgement, as one of a run that could not be measured if all holds, and the user's model went on."""
    user, data = get_user(case), transcript.features.get("simulated_users")
    if user is None or data is None or convert(data, Simulation).ended_by != MAX_TURNS:
        return judgement
    if user.max_turns_ok or not is_open_to_model(user):
        return judgement
    if judgement.status != PASSED:
        return judgement
    message = (
        f"{ROLE}'s model did not end the conversation within {user.max_turns} messages (max_turns), and nothing else "
        "says whether the agent brought it to its end; write a rule under stop_when, or 'max_turns_ok: true'"
    )
    reason = build_reason(NEVER_STOPPED, message, "input.user.max_turns")
    return replace(judgement, status=ERROR, reasons=(reason,), summary=format_summary((reason,)))
