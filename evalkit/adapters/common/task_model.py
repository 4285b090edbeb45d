"""A task's own model for the agent of a framework: cassettes offline, ``--evalkit-model`` live, as for instructions.

A framework hands the whole conversation over with each request, in messages of its own. A model's turn goes back to the
service as it came, signatures included, so the turns are kept here, and found again by the ids of their calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from evalkit.agents.task import Task
from evalkit.model.case import Declaration
from evalkit.model.transcript import ModelCall, ModelRequest, ModelTurn


class TaskModelConversation:
    """The conversation of one agent with the task's model."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._turns: dict[str, ModelTurn] = {}
        self._calls: dict[str, ModelCall] = {}

    async def ask(
        self,
        system: str | None,
        messages: Sequence[Mapping[str, Any]],
        tools: Iterable[tuple[str, str | None, Mapping[str, Any] | None]],
        response_schema: Mapping[str, Any] | None = None,
    ) -> tuple[ModelTurn, list[str]]:
        """The model's turn, and an id for each of its calls. `messages` are as `ModelRequest` has them."""
        turn = await self._task.turn(
            ModelRequest(
                system=system,
                messages=tuple(messages),
                functions=tuple(
                    Declaration(name=name, description=text or "", parameters=of) for name, text, of in tools
                ),
                temperature=self._task.settings.temperature,
                seed=self._task.settings.seed,
                response_schema=response_schema,
            )
        )
        number = len(self._task.turns)
        ids = [call.call_id or f"evalkit-{number}-{index}" for index, call in enumerate(turn.calls)]
        self._calls.update(zip(ids, turn.calls, strict=True))
        self._turns.update((known, turn) for known in ids)
        return turn, ids

    def build_model_message(self, text: str, calls: Iterable[tuple[str, str, Any]]) -> dict[str, Any]:
        """The message of the model that the framework has as `text` and `calls`, (id, name, arguments) each."""
        framework_calls = list(calls)
        turn = self._turns.get(framework_calls[0][0]) if framework_calls else None
        if turn is None:
            model_calls = tuple(
                ModelCall(name=name, arguments=given, call_id=call_id) for call_id, name, given in framework_calls
            )
            turn = ModelTurn(text=text, calls=model_calls, finish_reason="tool_calls" if model_calls else "stop")
            self._calls.update(
                (call_id, call) for (call_id, _, _), call in zip(framework_calls, model_calls, strict=True)
            )
        return {"role": "model", "turn": turn}

    def build_result_message(self, results: Iterable[tuple[str, str, Any]]) -> dict[str, Any]:
        """The message with the results of calls, (id, name, value) each."""
        matches = ((self._calls.get(call_id), call_id, name, value) for call_id, name, value in results)
        pairs = [(call or ModelCall(name=name, call_id=call_id), value) for call, call_id, name, value in matches]
        return {"role": "function", "results": pairs}
