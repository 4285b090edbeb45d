"""Who plays a simulated user: a script or a Python callable; `evalkit.features.simulated_users.model` has the third.

A script that has no answer, a callable that raises and a model that fails end the run as one that could not be
measured.
"""

from __future__ import annotations

import asyncio
import inspect
from abc import ABC, abstractmethod

from msgspec import Struct

from evalkit.checks.evidence import Evidence
from evalkit.features.simulated_users.records import SimulatorError
from evalkit.features.simulated_users.user import ROLE, SimulatedUser, UserCondition
from evalkit.functions.targets import TargetError, find_callable
from evalkit.hooks import RunView
from evalkit.jsonvalue import JsonDict, copy_json, to_json_safe
from evalkit.records.template import TemplateError
from evalkit.records.transcript import Transcript, UserMessage
from evalkit.text.format import format_deadline

NO_BRANCH = "simulator_no_branch"
RAISED = "simulator_raised"


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
    """What the user says next. `has_calls`: it called functions besides, which only models do."""

    message: UserMessage
    is_end: bool = False
    has_calls: bool = False


class UserPlayer(ABC):
    """Who plays the user. `is_trusted`: what it says is the author's word, and no mistake is looked for."""

    model: str | None = None
    cassette: str | None = None
    is_trusted = False

    @abstractmethod
    async def answer(self, run: RunView) -> Answer:
        """Return what the user says next in `run`."""

    def save(self) -> None:  # noqa: B027 - only a model is recorded
        """Write the recording, if there is one."""


class Script(UserPlayer):
    """Plays the user by the branches of the case."""

    is_trusted = True

    def __init__(self, user: SimulatedUser) -> None:
        self._user = user
        self._taken = [0] * len(user.script)

    async def answer(self, run: RunView) -> Answer:
        for number, branch in enumerate(self._user.script):
            if branch.times is not None and self._taken[number] >= branch.times:
                continue
            if branch.condition is None or holds(branch.condition, run, is_latest=True):
                self._taken[number] += 1
                text = self._user.fill_facts(branch.say)
                return Answer(UserMessage(text=text), branch.is_end or self._user.says_end(text))
        reply = run.exchanges[-1][1]
        message = f"{ROLE}'s script has no branch that fits the agent's answer {reply!r}; "
        raise SimulatorError(NO_BRANCH, f"{message}add one, or a last one without 'when'")


class CallablePlayer(UserPlayer):
    """Plays the user by a Python callable, which gets a `UserConversation` and returns what the user says."""

    def __init__(self, user: SimulatedUser) -> None:
        self._user = user
        self._target = user.call or ""
        self._state: JsonDict = {}

    async def answer(self, run: RunView) -> Answer:
        roles = (("user", 0), ("agent", 1))
        conversation = UserConversation(
            goal=self._user.goal,
            persona=self._user.persona,
            facts=copy_json(dict(self._user.facts)),
            messages=[{"role": role, "text": exchange[place]} for exchange in run.exchanges for role, place in roles],
            calls=[
                copy_json(
                    {"name": call.name, "arguments": call.arguments, "result": call.result, "outcome": call.outcome}
                )
                for call in run.dispatcher.calls
            ],
            state=self._state,
        )
        said = await self._call(conversation, run)
        if said is not None and not isinstance(said, str):
            text = f"returned a value of type {type(said).__name__}; it returns what the user says, or None at the end"
            raise SimulatorError(RAISED, f"{ROLE}, {self._target}, {text}")
        return Answer(UserMessage(text=said or ""), said is None or self._user.says_end(said))

    async def _call(self, conversation: UserConversation, run: RunView) -> object:
        limit = asyncio.timeout(run.deadline_s)
        try:
            function = find_callable(self._target, "shop.users:answer", run.case.permissions)
            if not callable(function):
                raise TargetError(f"'{self._target}' is not callable")
            async with limit:
                said = await asyncio.to_thread(function, conversation)
                return await said if inspect.isawaitable(said) else said
        except TargetError as error:  # it existed when the case was loaded; in a worker process it may be missing
            raise SimulatorError(RAISED, f"{ROLE}: {error}") from error
        except Exception as error:
            late = f"was still running after {format_deadline(run.deadline_s)}" if limit.expired() else ""
            text = late or f"raised {type(error).__name__}: {error}"
            raise SimulatorError(RAISED, f"{ROLE}, {self._target}, {text}") from error


def holds(condition: UserCondition, run: RunView, *, is_latest: bool = False) -> bool:
    """Return whether a condition holds of what the agent has done; `is_latest`: of its latest turn alone."""
    calls = run.dispatcher.calls
    latest = tuple(call for call in calls if call.user_turn == len(run.exchanges) - 1)
    transcript = Transcript(
        input=run.task.input,
        calls=latest if is_latest else calls,
        response=run.exchanges[-1][1],
        state=to_json_safe(run.dispatcher.state)[0],
    )
    aliases = {alias: function.name for function in run.dispatcher.declarations for alias in function.aliases}
    try:
        return condition.holds(Evidence(transcript, run.case.input, "run", calls, aliases))
    except TemplateError:  # what it refers to has not happened yet
        return False
