"""A reply that is still coming: which of its calls are certain by now, and the turn that it would make."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from evalkit.errors import IncompleteCallError
from evalkit.model.transcript import ModelCall, ModelTurn
from evalkit.providers.stream import StreamAccumulator
from evalkit.providers.streamed import Chunk


class RunningStream:
    """evalkit's own view of a stream that an agent reads. `index` is that of its model turn.

    It is kept apart from the agent's: a call that the agent makes before it is whole here was not the model's.
    """

    def __init__(self, index: int, functions: Iterable[Any]) -> None:
        self.index = index
        self._accumulator = StreamAccumulator(list(functions) or None)
        self._channel = "native"

    def feed(self, chunk: Chunk) -> None:
        self._channel = "text" if chunk.wire == "text" else "native"
        chunk.feed(self._accumulator)

    def take_certain_calls(self) -> list[ModelCall]:
        """The calls that have become certain since it was last asked."""
        return [
            ModelCall(
                name=call.name,
                arguments=call.arguments,
                call_id=call.id,
                channel=self._channel,
                repairs=call.repairs,
            )
            for call in self._accumulator.take()
        ]

    def finish(self) -> list[ModelCall]:
        """The calls that only the end has made certain. What is unfinished is none."""
        try:
            self._accumulator.close()
        except IncompleteCallError:
            return self.take_certain_calls()
        return self.take_certain_calls()

    def build_turn(self) -> ModelTurn:
        """The turn of a stream that nobody read to its end."""
        calls = () if self._channel == "text" else self._accumulator.completed
        model_calls = tuple(ModelCall(name=call.name, arguments=call.arguments, call_id=call.id) for call in calls)
        return ModelTurn(text=self._accumulator.text, calls=model_calls, finish_reason="truncated")
