"""What a model looks like from inside: one request in, one turn out."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from evalkit.model.transcript import ModelRequest, ModelTurn


@runtime_checkable
class Provider(Protocol):
    """A source of model turns: a service, a cassette, a script. The function-calling loop can't tell which."""

    name: str

    async def turn(self, request: ModelRequest) -> ModelTurn:
        """Answer one request. Raises a MeasurementError when there is no answer; a blocked or empty reply is a turn."""
        ...

    async def aclose(self) -> None:
        """Release what the running event loop holds for this provider. May be called more than once."""
        ...
