"""The part of a simulated user in a run: when the conversation ends, and what is said of the user's mistakes.

A mistake of the user ends the run as one that could not be measured. A conversation that does not come to its end is
the agent's failure, if a rule, a script or a callable says what the end is; whether a model should have ended it by
itself nobody knows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import to_builtins
from msgspec.structs import replace

from evalkit.agents.text_replies import parse_text
from evalkit.checks.expectation import Expectation
from evalkit.errors import IncompleteTraceError
from evalkit.features.simulated_users.mistakes import STOPPED_EARLY, find_mistake
from evalkit.features.simulated_users.players import CallablePlayer, Script, UserPlayer, holds
from evalkit.features.simulated_users.records import MAX_TURNS, NAME, Simulation, SimulatorError
from evalkit.features.simulated_users.user import ROLE, SimulatedUser
from evalkit.hooks import RunPart, RunView
from evalkit.lazy import LazyModule
from evalkit.records.transcript import RunFault, Transcript, UserMessage
from evalkit.text.format import format_count

if TYPE_CHECKING:
    from evalkit.features.simulated_users import model
else:
    model = LazyModule("evalkit.features.simulated_users.model")

OVER_BUDGET = "simulator_over_budget"
NOT_ENDED = "conversation_not_ended"
RULE, USER = "rule", "user"


class SimulatedConversation(RunPart):
    """A conversation of the case's user with the agent."""

    feature = NAME
    speaks = True

    def __init__(self, user: SimulatedUser) -> None:
        self.user = user
        self.simulation = Simulation(player=user.player)
        self._has_begun = False
        self._player: UserPlayer | None = None
        self._written: list[UserMessage] = []  # by a model

    async def next_message(self, run: RunView) -> UserMessage | None:
        self._has_begun = True
        user, count = self.user, len(run.exchanges)
        if count and user.end is not None and holds(user.end, run):
            ended_by = RULE
        elif count < user.max_turns:
            message = await self._ask(run)
            if message is not None:
                return message
            ended_by = USER
        else:  # without a rule the user has the last word: it may be content with the last answer
            ended_by = USER if user.end is None and await self._ask(run) is None else MAX_TURNS
        self.simulation = replace(self.simulation, ended_by=ended_by)
        return None

    def finish(self, transcript: Transcript, expectations: Sequence[Expectation | None]) -> Transcript:
        """Record the user's part, and as the agent's fault a conversation that should have come to its end."""
        if not self._has_begun:
            return transcript
        transcript = replace(transcript, features={**transcript.features, NAME: to_builtins(self.simulation)})
        user, is_over = self.user, self.simulation.ended_by == MAX_TURNS
        if not is_over or user.max_turns_ok or user.is_open_to_model or transcript.fault is not None:
            return transcript
        turns = f"{format_count(user.max_turns, 'message')} of the user (max_turns)"
        waited = f"; this did not hold: {user.end.text}" if user.end is not None else ""
        message = f"the conversation did not come to its end within {turns}{waited}"
        return replace(transcript, fault=RunFault(code=NOT_ENDED, message=message), stop_reason=NOT_ENDED)

    def save(self) -> None:
        if self._player is not None:
            self._player.save()

    def _choose_player(self, run: RunView) -> UserPlayer:
        if run.is_recorded:
            raise IncompleteTraceError(
                "a simulated user (input.user) talks with an agent that answers, and a trace does not: write what the "
                "user said there as input.turns"
            )
        user = self.user
        player: UserPlayer
        if user.script:
            player = Script(user)
        elif user.call is not None:
            player = CallablePlayer(user)
        else:
            player = model.open_player(user, run)
        self.simulation = replace(self.simulation, model=player.model, cassette=player.cassette)
        return player

    async def _ask(self, run: RunView) -> UserMessage | None:
        """Return the user's next message; None if it ends the conversation. Raises SimulatorError for a mistake."""
        user, number = self.user, len(run.exchanges) + 1
        player = self._player = self._player or self._choose_player(run)
        if number == 1 and user.opening is not None:
            return UserMessage(text=user.fill_facts(user.opening))
        answer = await player.answer(run)
        if answer.message.is_written:
            self._written.append(answer.message)
        self._check_limits(answer.message, player, number)
        if answer.is_end:
            self.simulation = replace(self.simulation, last_words=answer.message)
            if not player.is_trusted and number == 1:
                raise SimulatorError(STOPPED_EARLY, f"{ROLE} ended the conversation before it asked for anything")
            if not player.is_trusted and user.end is not None:
                text = f"{ROLE}, message {number}, ended the conversation, and this does not hold yet: {user.end.text}"
                raise SimulatorError(STOPPED_EARLY, text)
            return None
        if player.is_trusted:
            return answer.message
        is_calling = answer.has_calls or bool(parse_text(answer.message.text, run.dispatcher.declarations).calls)
        mistake = find_mistake(answer.message.text, user, run.exchanges, has_calls=is_calling)
        if mistake is not None:
            self.simulation = replace(self.simulation, last_words=answer.message)
            raise SimulatorError(mistake.code, f"{ROLE}, message {number}, {mistake.text}")
        return answer.message

    def _check_limits(self, message: UserMessage, player: UserPlayer, number: int) -> None:
        """Raise SimulatorError if the model that plays the user has taken more than it may, up to this message."""
        user = self.user
        tokens = [None if each.usage is None else each.usage.count_tokens() for each in self._written]
        limits: list[tuple[str, float | None, Sequence[float | None]]] = [
            ("max_tokens", user.max_tokens, tokens),
            ("max_cost_usd", user.max_cost_usd, [each.cost_usd for each in self._written]),
        ]
        for key, limit, amounts in limits:
            if limit is None:
                continue
            known = sum(amount for amount in amounts if amount is not None)
            problem = f"took {known:g}, more than {limit:g}" if known > limit else ""
            if None in amounts and player.cassette is None:
                problem = "can't be held: what its model takes is not known (a service without usage, or no price)"
            if problem:
                self.simulation = replace(self.simulation, last_words=message)
                raise SimulatorError(OVER_BUDGET, f"{ROLE}, message {number}: {key} {problem}")
