"""Cassette files: recorded or hand-written model turns, in YAML or JSON, one file per case (and run).

A turn that was recorded has a `request`: what was asked, with its fingerprint. A cassette is "recorded" when every
turn has one; otherwise a person had a hand in it, and it is "hand-written".
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from evalkit.errors import Location, PathProblem, Problem, SpecError
from evalkit.model.transcript import ModelTurn
from evalkit.providers.turns import describe_value, read_text, read_turn, report_unknown_keys

if TYPE_CHECKING:
    from evalkit.providers.streamed import Chunk

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
        from evalkit.providers.streamreading import read_written_reply

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
        from evalkit.yamlfile.builder import load

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
    from evalkit.yamlfile.places import read_positions

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
