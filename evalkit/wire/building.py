"""What the builders of requests share: ids of calls that came without one, results and the calls they belong to."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeGuard

from msgspec import Struct

from evalkit.errors import UsageError
from evalkit.jsonvalue import JsonDict, JsonObject
from evalkit.records.parts import PARTS, TEXT, InputPart
from evalkit.records.transcript import ModelCall, ModelTurn

NO_PARAMETERS: JsonObject = {"type": "object", "properties": {}}


def build_call_id(position: int, index: int) -> str:
    """Return the id of a call that came without one: the call `index` of the message at `position`."""
    return f"call_{position}_{index}"


def pair_results(
    results: Sequence[tuple[ModelCall, object]], pending: list[tuple[ModelCall, str]], position: int
) -> Iterator[tuple[str, object]]:
    """Yield each result with the id of its call, which is taken out of `pending`: the calls of the last reply with the
    ids that were sent. Results come in any order: each takes the call of its id, else of its content, else the next."""
    for index, (call, value) in enumerate(results):
        by_id = (place for place, (_, sent_id) in enumerate(pending) if sent_id == call.call_id)
        key = (call.name, call.arguments)
        by_content = (place for place, (sent, _) in enumerate(pending) if (sent.name, sent.arguments) == key)
        place = next(by_id, next(by_content, 0))
        yield pending.pop(place)[1] if pending else build_call_id(position, index), value


def is_error_result(value: object) -> TypeGuard[Mapping[str, object]]:
    """Return whether a result says that the function failed."""
    return isinstance(value, Mapping) and set(value) == {"error"}


def format_result(value: object) -> str:
    """Return a result as text: texts as they are, everything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


class BlockWriter(Struct, frozen=True, kw_only=True):
    """Writes a conversation of lists of blocks. `list_call_ids` gives the ids of the calls among those of a reply."""

    build_part: Callable[[InputPart], JsonDict]
    build_reply: Callable[[ModelTurn, int], list[JsonDict]]
    build_result: Callable[[str, object], JsonDict]
    list_call_ids: Callable[[Sequence[JsonObject]], list[str]]

    def build_messages(self, messages: Iterable[JsonObject]) -> list[JsonDict]:
        """Build the conversation in the API's form. Calls without an id get one, so that answers find them."""
        sent: list[JsonDict] = []
        pending: list[tuple[ModelCall, str]] = []
        for position, message in enumerate(messages):
            role = message.get("role")
            if role == "user":
                parts = message.get(PARTS) or (InputPart(kind=TEXT, text=message["text"]),)
                blocks = [self.build_part(part) for part in parts if part.kind != TEXT or part.text]
                sent.append({"role": "user", "content": blocks})
            elif role == "model":
                turn = message["turn"]
                blocks = self.build_reply(turn, position)
                pending = list(zip(turn.calls, self.list_call_ids(blocks), strict=False))
                sent.append({"role": "assistant", "content": blocks})
            elif role == "function":
                results = pair_results(message["results"], pending, position)
                blocks = [self.build_result(call_id, value) for call_id, value in results]
                sent.append({"role": "user", "content": blocks})
            else:
                raise UsageError(f"a message's role is user, model or function, got {role!r}")
        return [message for message in sent if message["content"]]  # the services take no message without content
