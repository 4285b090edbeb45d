"""HTTP cassettes: what an agent's own client asked and what came back, one YAML file per case and run.

Beside the model's cassette of a case, ``valid_001.yaml``, its HTTP cassette is ``valid_001.http.yaml``, and that of its
second run ``valid_001.run-2.http.yaml``. A file that says ``recorded: true`` was recorded; others are hand-written.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from evalkit.cassettes.http.messages import FORMS
from evalkit.cassettes.model import CODE, build_run_path, write_atomically
from evalkit.errors import Location, PathProblem, Problem, SpecError
from evalkit.providers.turns import describe_value, report_unknown_keys
from evalkit.yamlfile.events import Limits
from evalkit.yamlfile.parse import load
from evalkit.yamlfile.positions import read_positions
from evalkit.yamlfile.write import dump

HTTP_CASSETTE_VERSION = 1
ENDING = ".http.yaml"
HEADER = "# Recorded by evalkit: what the agent's own HTTP client asked, and the answers. Record it again with\n"
HEADER += "# pytest --evalkit --evalkit-record=stale\n"
KEYS = ("evalkit_http_cassette", "recorded", "description", "exchanges")
REQUEST_KEYS = ("method", "url", *FORMS)
RESPONSE_KEYS = ("status", "headers", "duration_ms", "json", "text", "base64")
_LIMITS = Limits(max_bytes=100_000_000, max_nodes=5_000_000)


class HttpCassette(Struct, frozen=True):
    """The exchanges of one run, as `http_messages` writes them: ``{"request": {...}, "response": {...}}``."""

    exchanges: tuple[Mapping[str, Any], ...] = ()
    kind: str = "recorded"  # or "hand-written"
    file: str = ""


def build_http_path(base: Path, run: int) -> Path:
    """Where the HTTP cassette of run `run` (from 0) is, beside the model's cassette `base`."""
    of_run = build_run_path(base, run)
    return of_run.with_name(f"{of_run.stem}{ENDING}")


def load_http_cassette(path: Path, display_path: str) -> HttpCassette:
    """Read a cassette. Raises SpecError with every problem and its place."""
    text = path.read_bytes()
    data = load(text, display_path, _LIMITS)
    problems: list[PathProblem] = []
    cassette = _read_cassette(data, display_path, problems)
    if problems:
        places = read_positions(text)
        located = [(places.locate(problem.path, key=problem.at_key), problem.message) for problem in problems]
        raise SpecError([Problem(Location(display_path, *place), message, CODE) for place, message in sorted(located)])
    return cassette


def _read_cassette(data: Any, file: str, problems: list[PathProblem]) -> HttpCassette:
    if not isinstance(data, Mapping) or not isinstance(data.get("exchanges"), list):
        problems.append(
            PathProblem((), f"an HTTP cassette is a mapping with 'exchanges', got {describe_value(data)}", CODE)
        )
        return HttpCassette(file=file)
    report_unknown_keys(data, KEYS, (), problems, "an HTTP cassette")
    version = data.get("evalkit_http_cassette", HTTP_CASSETTE_VERSION)
    if version != HTTP_CASSETTE_VERSION:
        message = f"version {describe_value(version)} is not {HTTP_CASSETTE_VERSION}, the one this evalkit reads; record it again"  # noqa: E501
        problems.append(PathProblem(("evalkit_http_cassette",), message, CODE))
    for index, exchange in enumerate(data["exchanges"]):
        _check_exchange(exchange, ("exchanges", index), problems)
    kind = "recorded" if data.get("recorded") is True else "hand-written"
    return HttpCassette(tuple(data["exchanges"]), kind, file)


def _check_exchange(data: Any, path: tuple[str | int, ...], problems: list[PathProblem]) -> None:
    if not isinstance(data, Mapping):
        problems.append(
            PathProblem(path, f"an exchange has 'request' and 'response', got {describe_value(data)}", CODE)
        )
        return
    report_unknown_keys(data, ("request", "response"), path, problems, "an exchange")
    for part, keys, needed in (("request", REQUEST_KEYS, "url"), ("response", RESPONSE_KEYS, "status")):
        value = data.get(part)
        if not isinstance(value, Mapping):
            problems.append(
                PathProblem((*path, part), f"'{part}' is a mapping with '{needed}', got {describe_value(value)}", CODE)
            )
            continue
        report_unknown_keys(value, keys, (*path, part), problems, f"a {part}")
        expected_type = str if needed == "url" else int
        if not isinstance(value.get(needed), expected_type):
            description = "an absolute URL" if needed == "url" else "a number such as 200"
            problems.append(
                PathProblem(
                    (*path, part, needed), f"'{needed}' is {description}, got {describe_value(value.get(needed))}", CODE
                )
            )


def write_http_cassette(path: Path, exchanges: list[dict[str, Any]]) -> None:
    """Write a recording, in one step."""
    data = {"evalkit_http_cassette": HTTP_CASSETTE_VERSION, "recorded": True, "exchanges": exchanges}
    write_atomically(path, (HEADER + dump(data)).encode())
