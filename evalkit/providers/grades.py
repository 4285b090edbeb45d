"""Recorded grades: what a grader answered about one run, replayed as long as it would be asked the same.

A file of grades is a cassette, one turn for each `judge` of the case, beside the model's own: ``valid_001.judge.yaml``,
of the second run ``valid_001.run-2.judge.yaml``. Turns without a `request` are hand-written.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from shlex import quote
from typing import Any

from evalkit.errors import MissingCassetteError, StaleCassetteError
from evalkit.model.transcript import ModelRequest, ModelTurn
from evalkit.providers.asked import asked, differences, fingerprint, line_changes, value_changes, without_secrets
from evalkit.providers.cassettefile import Cassette, find_cassette, load_cassette, path_of_run

ENDING = ".judge.yaml"
COMMAND = "pytest --evalkit --evalkit-record={} {}"
ANY_GRADER = "--evalkit-grader=gemini:MODEL"
RECORD_COMMAND = COMMAND.format("missing", ANY_GRADER)
_SHORT = 120  # characters; of a longer text the lines that differ are shown
_MOST = 6  # differences that are told


def grades_path(base: Path, run: int) -> Path:
    """Where the grades of run `run` (from 0) are recorded, beside the model's cassette `base`."""
    of_run = path_of_run(base, run)
    return of_run.with_name(f"{of_run.stem}{ENDING}")


def find_grades(base: Path, run: int, root: Path) -> Cassette | None:
    """The grades of a run: its own, or hand-written ones, which serve all runs; None if there are none.

    Raises SpecError for a file that breaks the format.
    """
    own = find_cassette(grades_path(base, run))
    found = own or find_cassette(grades_path(base, 0))
    if found is None:
        return None
    cassette = load_cassette(found, shown(found, root))
    return cassette if own is not None or cassette.kind == "hand-written" else None


def shown(path: Path, root: Path) -> str:
    """`path` as messages have it."""
    return (path.relative_to(root) if path.is_relative_to(root) else path).as_posix()


def asked_of_grader(request: ModelRequest, secrets: tuple[str, ...] = ()) -> dict[str, Any]:
    """`asked`, with a fingerprint for what is evalkit's own and the same in all cases."""
    data = asked(request, secrets)
    own = fingerprint({"system": data["system"], "functions": data["functions"]})
    return {**data, "system": f"the instruction of evalkit to graders {own}", "functions": []}


class RecordedGrades:
    """Answers the grading requests of one run with the turns of `cassette`, in their order.

    `grader`, if given, is the model that must have been recorded; `secrets` are values that recordings don't hold.
    """

    name = "cassette"

    def __init__(self, cassette: Cassette, *, grader: str | None = None, secrets: tuple[str, ...] = ()) -> None:
        self.cassette = cassette
        self._grader = grader
        self._secrets = secrets
        self._asked = 0

    async def turn(self, request: ModelRequest) -> ModelTurn:
        """The next turn. Raises MissingCassetteError and StaleCassetteError; the message has what to do."""
        turns = self.cassette.turns
        if self._asked >= len(turns):
            raise MissingCassetteError(
                f"{self.cassette.file} has {len(turns)} turn{'' if len(turns) == 1 else 's'}, and the case has more "
                f"than that to be graded. Grade it again: {self._command()}"
            )
        recorded = turns[self._asked].request
        if recorded is not None:
            changed = self._changes(recorded, asked_of_grader(request, self._secrets))
            if changed:
                told = "\n".join(f"  {line}" for line in changed[:_MOST])
                raise StaleCassetteError(
                    f"{self.cassette.file}: turn {self._asked + 1} grades something else:\n{told}\n"
                    f"Grade it again: {self._command()}"
                )
        self._asked += 1
        return turns[self._asked - 1].reply

    async def aclose(self) -> None:
        """Nothing is held."""

    def _command(self) -> str:
        grader = self._grader or self.cassette.model
        option = quote(f"--evalkit-grader={without_secrets(grader, self._secrets)}") if grader else ANY_GRADER
        return COMMAND.format("stale", option)

    def _changes(self, recorded: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
        was, grader = self.cassette.model, without_secrets(self._grader, self._secrets)
        found = [f"the grader was {was}, is {grader}"] if grader is not None and was not in (None, grader) else []
        if recorded.get("fingerprint") != fingerprint(now):
            edited = "its 'request' was edited by hand: delete 'request' there to make the turn a hand-written one"
            found += list(_differences(recorded, now)) or [edited]
        return found


def _differences(recorded: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """What changed, told of the documents that were graded where both can be read."""
    was, new = _document(recorded), _document(now)
    if was is None or new is None:
        yield from differences(recorded, now)
        return
    if recorded.get("system") != now.get("system"):
        yield "evalkit's own instruction to the grader changed"
    yield from (f"settings: {it}" for it in value_changes(recorded.get("settings") or {}, now.get("settings") or {}))
    old, response = ((it.get("evidence") or {}).pop("response", None) for it in (was, new))
    yield from value_changes(was, new)
    if old != response:
        yield from _of_response(old, response)


def _of_response(was: Any, now: Any) -> Iterator[str]:
    """Of a long text the beginning, which is what a value is shown by, tells nothing."""
    if isinstance(was, str) and isinstance(now, str) and max(len(was), len(now)) > _SHORT:
        yield f"evidence.response changed:{line_changes(was, now)}"
    else:
        yield from value_changes({"evidence": {"response": was}}, {"evidence": {"response": now}})


def _document(request: Mapping[str, Any]) -> dict[str, Any] | None:
    messages = request.get("messages") or [{}]
    try:
        document = json.loads(messages[0].get("user", ""))
    except (ValueError, AttributeError, TypeError):
        return None
    return document if isinstance(document, dict) and isinstance(document.get("evidence"), dict) else None
