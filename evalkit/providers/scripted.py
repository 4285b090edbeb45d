"""Model turns given in code, for tests of agents."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable

from evalkit.errors import MissingCassetteError, PathProblem, UsageError, format_path
from evalkit.jsonvalue import JsonObject
from evalkit.model.transcript import ModelRequest, ModelTurn
from evalkit.providers.turns import Chunk, read_written_reply, replay_pieces


class ScriptedProvider:
    """Answers with the given turns, one for each request, and keeps the requests in `requests`.

    A turn is a ModelTurn, a text, or a mapping as a cassette has it: ``{"calls": [{"send_email": {"to": "a@b.c"}}]}``.
    """

    name = "scripted"

    def __init__(self, turns: Iterable[ModelTurn | JsonObject | str]) -> None:
        problems: list[PathProblem] = []
        self._turns = tuple(
            (turn, ()) if isinstance(turn, ModelTurn) else read_written_reply(turn, ("turns", index), problems)
            for index, turn in enumerate(turns)
        )
        if problems:
            raise UsageError("\n".join(f"{format_path(problem.path)}: {problem.message}" for problem in problems))
        self.requests: list[ModelRequest] = []

    async def turn(self, request: ModelRequest) -> ModelTurn:
        """Return the next turn of the script. Raises MissingCassetteError when there is none left."""
        return self._take_turn(request)[0]

    def stream(self, request: ModelRequest) -> AsyncIterator[Chunk | ModelTurn]:
        """Return the next turn in pieces, and then whole."""
        return replay_pieces(*self._take_turn(request))

    def _take_turn(self, request: ModelRequest) -> tuple[ModelTurn, tuple[Chunk, ...]]:
        position = len(self.requests)
        self.requests.append(request)
        if position >= len(self._turns):
            raise MissingCassetteError(
                f"the script has {len(self._turns)} turns, and the agent asked for turn {position + 1}; "
                "add it to ScriptedProvider([...])"
            )
        return self._turns[position]

    async def aclose(self) -> None:
        """Nothing is held."""
