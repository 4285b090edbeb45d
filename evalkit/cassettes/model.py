"""Cassette files: recorded or hand-written model turns, in YAML or JSON, one file per case (and run).

A turn that was recorded has a `request`: what was asked, with its fingerprint. A cassette is "recorded" when every
turn has one; otherwise a person had a hand in it, and it is "hand-written".
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from evalkit.cassettes.fingerprint import (
    compute_fingerprint,
    describe_reply,
    describe_request,
    redact_secrets,
    replace_lone_surrogates,
)
from evalkit.errors import Location, MissingCassetteError, PathProblem, Problem, SpecError, StaleCassetteError
from evalkit.model.transcript import ModelRequest, ModelTurn, Usage
from evalkit.providers.base import Provider
from evalkit.providers.turns import describe_value, read_text, read_turn, report_unknown_keys
from evalkit.yamlfile.write import dump

if TYPE_CHECKING:
    from evalkit.providers.chunks import Chunk


CASSETTE_VERSION = 1
CASSETTE_KEYS = ("evalkit_cassette", "model", "description", "turns")
REQUEST_KEYS = ("fingerprint", "continues", "system", "functions", "settings", "messages")
SUFFIXES = (".yaml", ".yml", ".json")
CODE = "invalid_cassette"


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file that nobody finds half written, in a folder that is made if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    partial.write_bytes(content)
    os.replace(partial, path)


class CassetteTurn(Struct, frozen=True):
    """One reply; `request` is what it answered, as recorded, or None if a person wrote it. `chunks`: it was written as
    a stream of these."""

    reply: ModelTurn
    request: Mapping[str, Any] | None = None
    chunks: tuple[Chunk, ...] = ()


class Cassette(Struct, frozen=True):
    """The turns of one run. `model` is the one that was recorded, e.g. ``gemini:gemini-2.5-flash``."""

    turns: tuple[CassetteTurn, ...] = ()
    model: str | None = None
    file: str = ""

    @property
    def kind(self) -> str:
        """``recorded`` or ``hand-written``."""
        recorded = bool(self.turns) and all(turn.request is not None for turn in self.turns)
        return "recorded" if recorded else "hand-written"


def parse_cassette(data: Any, *, file: str = "") -> tuple[Cassette, list[PathProblem]]:
    """The cassette that `data` (a parsed file) describes, and everything that is wrong with it."""
    problems: list[PathProblem] = []
    if not isinstance(data, Mapping):
        problems.append(PathProblem((), f"a cassette is a mapping with 'turns', got {describe_value(data)}", CODE))
        return Cassette(file=file), problems
    report_unknown_keys(data, CASSETTE_KEYS, (), problems, "a cassette")
    if data.get("evalkit_cassette", CASSETTE_VERSION) != CASSETTE_VERSION:
        version = describe_value(data["evalkit_cassette"])
        message = f"cassette version {version} is not {CASSETTE_VERSION}, the one this evalkit reads; record it again"
        problems.append(PathProblem(("evalkit_cassette",), message, CODE))
    turns = data.get("turns")
    if not isinstance(turns, list) or not turns:
        turns_path: tuple[str | int, ...] = ("turns",) if "turns" in data else ()
        problems.append(
            PathProblem(turns_path, f"'turns' is a list of at least one model turn, got {describe_value(turns)}", CODE)
        )
        turns = []
    cassette_turns = tuple(_read_cassette_turn(turn, ("turns", index), problems) for index, turn in enumerate(turns))
    return Cassette(turns=cassette_turns, model=read_text(data, "model", (), problems), file=file), problems


def _read_cassette_turn(data: Any, path: tuple[str | int, ...], problems: list[PathProblem]) -> CassetteTurn:
    if isinstance(data, Mapping) and "stream" in data:
        from evalkit.providers.chunks import read_written_reply

        reply, chunks = read_written_reply(data, path, problems)
        return CassetteTurn(reply, chunks=chunks)
    if not isinstance(data, Mapping) or "request" not in data:
        return CassetteTurn(read_turn(data, path, problems))
    request = data["request"]
    if isinstance(request, Mapping):
        report_unknown_keys(request, REQUEST_KEYS, (*path, "request"), problems, "a request")
    else:
        problems.append(PathProblem((*path, "request"), f"'request' is a mapping, got {describe_value(request)}", CODE))
        request = None
    reply = read_turn({key: value for key, value in data.items() if key != "request"}, path, problems)
    return CassetteTurn(reply, request)


def load_cassette(path: Path, display_path: str | None = None) -> Cassette:
    """Read a cassette file. Raises SpecError with every problem and its place; FileNotFoundError if there is none."""
    file = display_path or str(path)
    text = path.read_bytes()
    if path.suffix == ".json":
        data = _load_json(text, file)
    else:
        from evalkit.yamlfile.parse import load

        data = load(text, file)
    cassette, problems = parse_cassette(data, file=file)
    if problems:
        raise SpecError(sorted(_locate_problems(problems, text, file), key=lambda problem: problem.location))
    return cassette


def _load_json(text: bytes, file: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        line, column = getattr(error, "lineno", 0), getattr(error, "colno", 0)
        message = f"this is not JSON: {getattr(error, 'msg', error)}"
        raise SpecError([Problem(Location(file, line, column), message, CODE)]) from None


def _locate_problems(problems: Iterable[PathProblem], text: bytes, file: str) -> Iterable[Problem]:
    from evalkit.yamlfile.positions import read_positions

    places = read_positions(text)  # JSON has places too: it is close enough to YAML
    for problem in problems:
        line, column = places.locate(problem.path, key=problem.at_key)
        yield Problem(Location(file, line, column), problem.message, CODE)


def find_cassette(base: Path) -> Path | None:
    """The file at `base`, whatever of ``.yaml``, ``.yml`` and ``.json`` it ends in; None if there is none."""
    candidates = [base, *(base.with_suffix(suffix) for suffix in SUFFIXES)]
    return next((path for path in candidates if path.is_file()), None)


def build_run_path(base: Path, run: int) -> Path:
    """Where run `run` (from 0) of a case is recorded: the first at `base`, later ones beside it as ``*.run-2.yaml``."""
    return base if run == 0 else base.with_name(f"{base.stem}.run-{run + 1}{base.suffix}")


# Replaying a cassette: the default provider, which needs neither a network nor a key.


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
        from evalkit.providers.chunks import replay_pieces

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
        from evalkit.cassettes.fingerprint import compute_fingerprint, describe_request, redact_secrets

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
    from evalkit.cassettes.fingerprint import compare_requests

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


# Recording: a live provider whose turns become a readable cassette.
#
# Written whole, at the end of a run that could be measured. Left out are secrets, ids, signatures and whatever else would  # noqa: E501
# change with each recording of the same conversation.

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
                f"{self._display_path} is hand-written, and recording would overwrite it; move it away to record the case, "  # noqa: E501
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
