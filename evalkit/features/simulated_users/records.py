"""What a transcript says of a simulated user, beside its messages."""

from __future__ import annotations

from msgspec import Struct

from evalkit.errors import MeasurementError
from evalkit.records.transcript import UserMessage

NAME = "simulated_users"
KEY = "user"  # of `input`
MAX_TURNS = "max_turns"


class Simulation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The part of a simulated user in a conversation. Tokens and money are its own, and no part of the agent's.

    `ended_by`: ``rule`` (that of `stop_when` holds), ``user`` (it said so), ``max_turns``, or "": something else did.
    """

    player: str  # "model", "script" or "call"
    last_words: UserMessage | None = None  # with which the user ended it; the agent did not get them
    ended_by: str = ""
    model: str | None = None  # "gemini:MODEL"; None: no model was asked, or a person wrote what it says
    cassette: str | None = None  # "recorded", "hand-written"; None: no model, or one that was asked


class SimulatorError(MeasurementError):
    """The simulated user made a mistake, or could not answer: nothing that the agent is to blame for."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
