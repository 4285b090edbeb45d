"""Recording: a live provider whose turns become a readable cassette.

Written whole, at the end of a run that could be measured. Left out are secrets, ids, signatures and whatever else would
change with each recording of the same conversation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from evalkit.errors import MissingCassetteError
from evalkit.model.transcript import ModelRequest, ModelTurn, Usage
from evalkit.providers.asked import (
    compute_fingerprint,
    describe_reply,
    describe_request,
    redact_secrets,
    replace_lone_surrogates,
)
from evalkit.providers.cassettefile import CASSETTE_VERSION, find_cassette, load_cassette, write_atomically
from evalkit.providers.protocol import Provider
from evalkit.yamlfile.writing import dump

HEADER = (
    "# Recorded by evalkit. Record it again when the case's request changes: pytest --evalkit --evalkit-record=stale\n"
)


class RecordingProvider:
    """Passes requests on to `live` and keeps the exchange; `save` writes it to `path`.

    `model` is the name that the cassette will carry, e.g. ``gemini:gemini-2.5-flash``; `told` makes of a request what
    is written of it.
    """

    def __init__(
        self,
        live: Provider,
        path: Path,
        *,
        model: str,
        display_path: str = "",
        secrets: tuple[str, ...] = (),
        describe: Callable[[ModelRequest, tuple[str, ...]], dict[str, Any]] = describe_request,
    ) -> None:
        self.name = live.name
        self.path = path
        self._live = live
        self._model = model
        self._display_path = display_path or path.as_posix()
        self._secrets = secrets
        self._describe = describe
        self._exchange: list[tuple[dict[str, Any], ModelTurn]] = []
        self._checked = False

    async def turn(self, request: ModelRequest) -> ModelTurn:
        """The live provider's turn. Raises MissingCassetteError rather than record over a hand-written cassette."""
        if not self._checked:
            self._refuse_to_overwrite()
            self._checked = True
        reply = await self._live.turn(request)
        self._exchange.append((self._describe(request, self._secrets), reply))
        return reply

    async def aclose(self) -> None:
        """The live provider is shared, and closed by whoever opened it."""

    def save(self) -> None:
        """Write the cassette, in one step; nothing if the model was never asked."""
        if not self._exchange:
            return
        model = redact_secrets(self._model, self._secrets)  # its base_url may hold a password
        data = {"evalkit_cassette": CASSETTE_VERSION, "model": model, "turns": self._serialize_turns()}
        write_atomically(self.path, (HEADER + dump(replace_lone_surrogates(data))).encode())

    def _refuse_to_overwrite(self) -> None:
        existing_path = find_cassette(self.path)
        if existing_path is not None and load_cassette(existing_path, self._display_path).kind == "hand-written":
            raise MissingCassetteError(
                f"{self._display_path} is hand-written, and recording would overwrite it; move it away to record the case, "
                "or use --evalkit-record=missing to keep it"
            )

    def _serialize_turns(self) -> list[dict[str, Any]]:
        turns = []
        before: dict[str, Any] | None = None
        for request, reply in self._exchange:
            turns.append({"request": _serialize_request(request, before), **self._serialize_reply(reply)})
            before = {**request, "messages": [*request["messages"], self._describe_reply(reply)]}
        return turns

    def _describe_reply(self, reply: ModelTurn) -> dict[str, Any]:
        reply_data: dict[str, Any] = redact_secrets({"model": describe_reply(reply)}, self._secrets)
        return reply_data

    def _serialize_reply(self, reply: ModelTurn) -> dict[str, Any]:
        data: dict[str, Any] = redact_secrets(describe_reply(reply), self._secrets)
        if reply.finish_reason != ("tool_calls" if reply.calls else "stop"):
            data["finish_reason"] = reply.finish_reason
        if reply.finish_message is not None:
            data["finish_message"] = redact_secrets(reply.finish_message, self._secrets)
        if reply.usage is not None:
            data["usage"] = _serialize_usage(reply.usage)
        if reply.model is not None:
            data["model"] = reply.model
        return {**data, "duration_ms": round(reply.duration_ms)}


def _serialize_usage(usage: Usage) -> dict[str, int]:
    counts = {name: getattr(usage, name) for name in Usage.__struct_fields__}
    return {name: count for name, count in counts.items() if count}


def _serialize_request(request: Mapping[str, Any], before: Mapping[str, Any] | None) -> dict[str, Any]:
    """`request` under its fingerprint; only what is new in it where it goes on from `before`."""
    result = {"fingerprint": compute_fingerprint(request)}
    if before is not None and _is_continuation(request, before):
        return {**result, "continues": True, "messages": request["messages"][len(before["messages"]) :]}
    parts = {key: value for key, value in request.items() if value not in (None, [], {})}
    return {**result, **parts}


def _is_continuation(request: Mapping[str, Any], before: Mapping[str, Any]) -> bool:
    same = all(request[key] == before[key] for key in ("system", "functions", "settings"))
    return same and request["messages"][: len(before["messages"])] == before["messages"]


def expand_requests(requests: Sequence[Mapping[str, Any] | None], replies: Sequence[ModelTurn]) -> list[Any]:
    """The requests of a cassette's turns in full, as `asked` gives them; None for turns that a person wrote."""
    full: list[Any] = []
    before: dict[str, Any] | None = None
    for request, reply in zip(requests, replies, strict=True):
        if request is None:
            full.append(None)
            continue
        base = before if request.get("continues") and before is not None else {}
        complete_request = {
            "system": request.get("system", base.get("system")),
            "functions": request.get("functions", base.get("functions", [])),
            "settings": request.get("settings", base.get("settings", {})),
            "messages": [*base.get("messages", []), *request.get("messages", [])],
        }
        full.append(complete_request)
        before = {**complete_request, "messages": [*complete_request["messages"], {"model": describe_reply(reply)}]}
    return full
