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
from evalkit.providers.asked import asked, fingerprint, replied, without_secrets, writable
from evalkit.providers.cassettefile import CASSETTE_VERSION, find_cassette, load_cassette, write_in_one_step
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
        shown_as: str = "",
        secrets: tuple[str, ...] = (),
        told: Callable[[ModelRequest, tuple[str, ...]], dict[str, Any]] = asked,
    ) -> None:
        self.name = live.name
        self.path = path
        self._live = live
        self._model = model
        self._shown_as = shown_as or path.as_posix()
        self._secrets = secrets
        self._told = told
        self._exchange: list[tuple[dict[str, Any], ModelTurn]] = []
        self._checked = False

    async def turn(self, request: ModelRequest) -> ModelTurn:
        """The live provider's turn. Raises MissingCassetteError rather than record over a hand-written cassette."""
        if not self._checked:
            self._refuse_to_overwrite()
            self._checked = True
        reply = await self._live.turn(request)
        self._exchange.append((self._told(request, self._secrets), reply))
        return reply

    async def aclose(self) -> None:
        """The live provider is shared, and closed by whoever opened it."""

    def save(self) -> None:
        """Write the cassette, in one step; nothing if the model was never asked."""
        if not self._exchange:
            return
        model = without_secrets(self._model, self._secrets)  # its base_url may hold a password
        data = {"evalkit_cassette": CASSETTE_VERSION, "model": model, "turns": self._turns()}
        write_in_one_step(self.path, (HEADER + dump(writable(data))).encode())

    def _refuse_to_overwrite(self) -> None:
        found = find_cassette(self.path)
        if found is not None and load_cassette(found, self._shown_as).kind == "hand-written":
            raise MissingCassetteError(
                f"{self._shown_as} is hand-written, and recording would overwrite it; move it away to record the case, "
                "or use --evalkit-record=missing to keep it"
            )

    def _turns(self) -> list[dict[str, Any]]:
        turns = []
        before: dict[str, Any] | None = None
        for request, reply in self._exchange:
            turns.append({"request": _compact(request, before), **self._reply(reply)})
            before = {**request, "messages": [*request["messages"], self._said(reply)]}
        return turns

    def _said(self, reply: ModelTurn) -> dict[str, Any]:
        said: dict[str, Any] = without_secrets({"model": replied(reply)}, self._secrets)
        return said

    def _reply(self, reply: ModelTurn) -> dict[str, Any]:
        data: dict[str, Any] = without_secrets(replied(reply), self._secrets)
        if reply.finish_reason != ("tool_calls" if reply.calls else "stop"):
            data["finish_reason"] = reply.finish_reason
        if reply.finish_message is not None:
            data["finish_message"] = without_secrets(reply.finish_message, self._secrets)
        if reply.usage is not None:
            data["usage"] = _usage(reply.usage)
        if reply.model is not None:
            data["model"] = reply.model
        return {**data, "duration_ms": round(reply.duration_ms)}


def _usage(usage: Usage) -> dict[str, int]:
    counts = {name: getattr(usage, name) for name in Usage.__struct_fields__}
    return {name: count for name, count in counts.items() if count}


def _compact(request: Mapping[str, Any], before: Mapping[str, Any] | None) -> dict[str, Any]:
    """`request` under its fingerprint; only what is new in it where it goes on from `before`."""
    told = {"fingerprint": fingerprint(request)}
    if before is not None and _continues(request, before):
        return {**told, "continues": True, "messages": request["messages"][len(before["messages"]) :]}
    parts = {key: value for key, value in request.items() if value not in (None, [], {})}
    return {**told, **parts}


def _continues(request: Mapping[str, Any], before: Mapping[str, Any]) -> bool:
    same = all(request[key] == before[key] for key in ("system", "functions", "settings"))
    return same and request["messages"][: len(before["messages"])] == before["messages"]


def recorded_requests(requests: Sequence[Mapping[str, Any] | None], replies: Sequence[ModelTurn]) -> list[Any]:
    """The requests of a cassette's turns in full, as `asked` gives them; None for turns that a person wrote."""
    full: list[Any] = []
    before: dict[str, Any] | None = None
    for request, reply in zip(requests, replies, strict=True):
        if request is None:
            full.append(None)
            continue
        base = before if request.get("continues") and before is not None else {}
        whole = {
            "system": request.get("system", base.get("system")),
            "functions": request.get("functions", base.get("functions", [])),
            "settings": request.get("settings", base.get("settings", {})),
            "messages": [*base.get("messages", []), *request.get("messages", [])],
        }
        full.append(whole)
        before = {**whole, "messages": [*whole["messages"], {"model": replied(reply)}]}
    return full
