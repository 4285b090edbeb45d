"""The task's own model for agents of frameworks: their requests go through evalkit, and its turns back as they came."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from evalkit.adapters.common import ToolSpec
from evalkit.agents.task import Task
from evalkit.jsonvalue import JsonDict, JsonObject
from evalkit.records.case import Declaration
from evalkit.records.parts import FILE, IMAGE, PARTS, TEXT, InputPart, build_user_message, hash_content
from evalkit.records.transcript import ModelCall, ModelRequest, ModelTurn


class TaskModelConversation:
    """The conversation of a framework's agent with the task's own model: cassettes offline, ``--evalkit-model`` live.

    A framework passes the whole conversation with each request, in messages of its own. A model's turn goes back to
    the service as it came, signatures included, so the turns are kept here, and found by the ids of their calls.
    """

    def __init__(self, task: Task) -> None:
        self._task = task
        self._turns: dict[str, ModelTurn] = {}
        self._calls: dict[str, ModelCall] = {}

    async def ask(
        self,
        system: str | None,
        messages: Sequence[JsonObject],
        tools: Iterable[ToolSpec],
        response_schema: JsonObject | None = None,
    ) -> tuple[ModelTurn, list[str]]:
        """Return the model's turn, and an id for each of its calls. `messages` are in the forms of `ModelRequest`."""
        turn = await self._task.turn(
            ModelRequest(
                system=system,
                messages=tuple(messages),
                functions=tuple(
                    Declaration(name=name, description=description or "", parameters=parameters)
                    for name, description, parameters in tools
                ),
                response_schema=response_schema,
            )
        )
        number = len(self._task.turns)
        ids = [call.call_id or f"evalkit-{number}-{index}" for index, call in enumerate(turn.calls)]
        self._calls.update(zip(ids, turn.calls, strict=True))
        self._turns.update(dict.fromkeys(ids, turn))
        return turn, ids

    def build_model_message(self, text: str, calls: Iterable[tuple[str, str, object]]) -> JsonDict:
        """Build the model's message for `text` and `calls`, (id, name, arguments) each, as the framework keeps them."""
        framework_calls = list(calls)
        turn = self._turns.get(framework_calls[0][0]) if framework_calls else None
        if turn is None:
            model_calls = tuple(
                ModelCall(name=name, arguments=arguments, call_id=call_id)
                for call_id, name, arguments in framework_calls
            )
            turn = ModelTurn(text=text, calls=model_calls, finish_reason="tool_calls" if model_calls else "stop")
            self._calls.update(
                (call_id, call) for (call_id, _, _), call in zip(framework_calls, model_calls, strict=True)
            )
        return {"role": "model", "turn": turn}

    def build_user_message(self, text: str, pieces: Iterable[str | tuple[str, bytes]]) -> JsonDict:
        """Build the user's message: its `text`, and where it holds more its pieces, texts and (type, content) each."""
        parts = [
            InputPart(kind=TEXT, text=piece) if isinstance(piece, str) else self._to_part(*piece) for piece in pieces
        ]
        return build_user_message(text, parts)

    def _to_part(self, mime_type: str, content: bytes) -> InputPart:
        """Return the case's own part, whose name a cassette shows, or another one."""
        own_parts = (part for message in self._task.messages for part in message.get(PARTS, ()))
        foreign_part = InputPart(
            kind=IMAGE if mime_type.startswith("image/") else FILE,
            mime_type=mime_type,
            sha256=hash_content(content),
            content=content,
        )
        return next((part for part in own_parts if part.sha256 == foreign_part.sha256), foreign_part)

    def build_result_message(self, results: Iterable[tuple[str, str, object]]) -> JsonDict:
        """Build the message with the results of calls, (id, name, value) each."""
        matches = ((self._calls.get(call_id), call_id, name, value) for call_id, name, value in results)
        pairs = [(call or ModelCall(name=name, call_id=call_id), value) for call, call_id, name, value in matches]
        return {"role": "function", "results": pairs}
