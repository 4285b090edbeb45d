"""Replaying a cassette: the default provider, which needs neither a network nor a key."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from evalkit.errors import MissingCassetteError, StaleCassetteError
from evalkit.model.transcript import ModelRequest, ModelTurn
from evalkit.providers.cassettefile import Cassette, CassetteTurn, build_run_path, find_cassette, load_cassette

if TYPE_CHECKING:
    from evalkit.providers.streamed import Chunk


class CassetteProvider:
    """Answers request after request with the turns of one file, read when the first request comes.

    `path` is the file of the case, `run` (from 0) the repetition. A recorded repetition has a file of its own; one
    hand-written file serves them all. `root` shortens the paths in messages. `model`, if given, is the one that must
    have been recorded; `secrets` are values that recordings don't hold.
    """

    name = "cassette"

    def __init__(
        self,
        path: str | Path,
        *,
        run: int = 0,
        root: Path | None = None,
        model: str | None = None,
        secrets: tuple[str, ...] = (),
    ) -> None:
        self.path = Path(path)
        self.run = run
        self._root = root
        self._model = model
        self._secrets = secrets
        self._cassette: Cassette | None = None
        self._position = 0

    @property
    def cassette(self) -> Cassette | None:
        """What was read, or None before the first request."""
        return self._cassette

    async def turn(self, request: ModelRequest) -> ModelTurn:
        """The next turn of the file.

        Raises MissingCassetteError (no file, or no turn left; the message has what to write), StaleCassetteError (it
        was recorded for another request; the message has what changed) and SpecError (the file breaks the format).
        """
        return self._take_turn(request).reply

    def stream(self, request: ModelRequest) -> AsyncIterator[Chunk | ModelTurn]:
        """The next turn in pieces, and then whole. A turn that was not written as a stream comes in whole pieces."""
        from evalkit.providers.streamed import replay_pieces

        turn = self._take_turn(request)
        return replay_pieces(turn.reply, turn.chunks)

    def _take_turn(self, request: ModelRequest) -> CassetteTurn:
        if self._cassette is None:
            self._cassette = self._open_cassette(request)
        index = self._position
        if index >= len(self._cassette.turns):
            raise MissingCassetteError(_format_exhausted_message(self._cassette, request))
        self._check_request(self._cassette, index, request)
        self._position += 1
        return self._cassette.turns[index]

    def _check_request(self, cassette: Cassette, index: int, request: ModelRequest) -> None:
        """Whether the recorded turn answers `request`; hand-written ones answer whatever they are asked."""
        recorded = cassette.turns[index].request
        if recorded is None:
            return
        from evalkit.providers.asked import compute_fingerprint, describe_request, redact_secrets

        now = describe_request(request, self._secrets)
        changed: list[str] = []
        model = redact_secrets(self._model, self._secrets)
        if model is not None and cassette.model not in (None, model):
            changed.append(f"the model was {cassette.model}, is {model}")
        if recorded.get("fingerprint") != compute_fingerprint(now):
            changed += _compare_with_recording(cassette, index, now)
        if changed:
            raise StaleCassetteError(_format_stale_message(cassette, index, changed))

    def unused(self) -> tuple[int, ...]:
        """The turns (from 1) that no request took. Empty as long as nothing was asked at all."""
        if self._cassette is None:
            return ()
        return tuple(range(self._position + 1, len(self._cassette.turns) + 1))

    async def aclose(self) -> None:
        """Nothing is held."""

    def _open_cassette(self, request: ModelRequest) -> Cassette:
        path = find_cassette(build_run_path(self.path, self.run))
        if path is not None:
            return load_cassette(path, self._format_path(path))
        first = find_cassette(self.path) if self.run else None
        if first is None:
            raise MissingCassetteError(_format_missing_message(self._format_path(self.path), request))
        cassette = load_cassette(first, self._format_path(first))
        if cassette.kind == "recorded":
            raise MissingCassetteError(
                f"run {self.run + 1} of this case was never recorded: {cassette.file} is there, "
                f"{self._format_path(build_run_path(self.path, self.run))} is not. Record it: {RECORD_COMMAND}"
            )
        return cassette

    @property
    def file(self) -> str:
        """The file that answers, or would, as messages name it."""
        return self._cassette.file if self._cassette is not None else self._format_path(self.path)

    def _format_path(self, path: Path) -> str:
        if self._root is not None and path.is_relative_to(self._root):
            path = path.relative_to(self._root)
        return path.as_posix()


RECORD_COMMAND = "pytest --evalkit --evalkit-record=missing --evalkit-model=gemini:MODEL"


def _compare_with_recording(cassette: Cassette, index: int, now: Mapping[str, Any]) -> list[str]:
    from evalkit.providers.asked import compare_requests
    from evalkit.providers.recording import expand_requests

    turns = cassette.turns[: index + 1]
    was = expand_requests([turn.request for turn in turns], [turn.reply for turn in turns])[-1]
    edited = "its 'request' was edited by hand: delete 'request' there to make the turn a hand-written one"
    return compare_requests(was, now) or [edited]


def _format_stale_message(cassette: Cassette, index: int, changed: Iterable[str]) -> str:
    option = quote(f"--evalkit-model={cassette.model or 'gemini:MODEL'}")  # a base_url holds what shells read
    return (
        f"{cassette.file}, turn {index + 1}, was recorded for another request:\n"
        + "\n".join(f"  {line}" for line in changed)
        + f"\nRecord it again: pytest --evalkit --evalkit-record=stale {option}"
    )


def _format_missing_message(file: str, request: ModelRequest) -> str:
    calls = [_build_skeleton_call(function) for function in request.functions[:1]]
    lines = ["turns:"]
    lines += ["  - calls:", *(f"      - {call}" for call in calls)] if calls else []
    lines += ["  - text: what the model answers"]
    return (
        f"no cassette: the agent asked the model, and {file} does not exist. Write the model's turns there:\n"
        + _format_indented(lines)
        + f"\nor record them: {RECORD_COMMAND}"
    )


def _format_exhausted_message(cassette: Cassette, request: ModelRequest) -> str:
    count = len(cassette.turns)
    turns = "1 turn" if count == 1 else f"{count} turns"
    last = _describe_last_message(request.messages)
    again = cassette.kind == "recorded"  # what a person wrote is never recorded over
    return (
        f"{cassette.file} has {turns}, and the agent asked for turn {count + 1}{last}. "
        "Add what the model answers then:\n"
        + _format_indented(["  - text: what the model answers"])
        + ("\nor record the case again: " if again else f"\nor delete {cassette.file} and record the case: ")
        + RECORD_COMMAND.replace("=missing", "=all" if again else "=missing")
    )


def _format_indented(lines: Iterable[str]) -> str:
    return "\n".join("    " + line for line in lines)


def _build_skeleton_call(function: Any) -> str:
    schema = function.parameters or {}
    required = schema.get("required") if isinstance(schema, Mapping) else None
    names = [name for name in required if isinstance(name, str)] if isinstance(required, (list, tuple)) else []
    return f"{function.name}: {{{', '.join(f'{name}: ...' for name in names)}}}"


def _describe_last_message(messages: Iterable[Mapping[str, Any]]) -> str:
    """What the request ended with, as the end of a sentence."""
    last = next(reversed(list(messages)), None)
    if last is None:
        return ""
    if last.get("role") == "function":
        answers = ", ".join(f"{call.name} → {_format_short(value)}" for call, value in last["results"])
        return f" (after {answers})"
    return f" (after the message {_format_short(last.get('text', ''))})" if "text" in last else ""


def _format_short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= 80 else text[:79] + "…"
