"""Recorded grades: the answers of a grader about one run.

They are a cassette, with one turn for each `judge` of the case, beside the model's own: ``valid_001.judge.yaml``, of
the second run ``valid_001.run-2.judge.yaml``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from shlex import quote

from evalkit.errors import MissingCassetteError, StaleCassetteError
from evalkit.jsonvalue import JsonDict, JsonObject
from evalkit.models.cassettes.fingerprint import (
    adopt_draw,
    compare_requests,
    compare_values,
    compute_fingerprint,
    describe_request,
    format_line_changes,
)
from evalkit.models.cassettes.model import Cassette
from evalkit.models.cassettes.stand_ins import mask_stand_ins
from evalkit.records.transcript import ModelRequest, ModelTurn
from evalkit.text.format import format_count
from evalkit.text.redact import redact_secrets

ENDING = ".judge.yaml"
_GRADES_COMMAND = "pytest --evalkit --evalkit-record={} {}"
ANY_GRADER = "--evalkit-grader=gemini:MODEL"
RECORD_GRADES = _GRADES_COMMAND.format("missing", ANY_GRADER)
_SHORT = 120  # characters; of a longer text the lines that differ are shown
_MAX_CHANGES = 6  # differences in a message


def describe_grading_request(request: ModelRequest, secrets: tuple[str, ...] = ()) -> JsonDict:
    """Describe a request to a grader, with a fingerprint in place of evalkit's own parts, which are the same in all
    cases."""
    data = describe_request(request, secrets)
    digest = compute_fingerprint({"system": data["system"], "functions": data["functions"]})
    return {**data, "system": f"the instruction of evalkit to graders {digest}", "functions": []}


class RecordedGrades:
    """Answers the grading requests of one run with the turns of `cassette`, in their order.

    `grader`, if given, is the model that must have been recorded; `secrets` are values that recordings don't hold.
    """

    name = "cassette"

    def __init__(self, cassette: Cassette, *, grader: str | None = None, secrets: tuple[str, ...] = ()) -> None:
        self.cassette = cassette
        self._grader = grader
        self._secrets = secrets
        self._position = 0

    async def turn(self, request: ModelRequest) -> ModelTurn:
        """Return the next turn. Raises MissingCassetteError and StaleCassetteError; the message says what to do."""
        turns = self.cassette.turns
        if self._position >= len(turns):
            raise MissingCassetteError(
                f"{self.cassette.file} has {format_count(len(turns), 'turn')}, and the case has more "
                f"than that to be graded. Grade it again: {self._build_command()}"
            )
        recorded = turns[self._position].request
        if recorded is not None:
            now = describe_grading_request(request, self._secrets)
            now = adopt_draw(mask_stand_ins(now) if self.cassette.has_stand_ins else now, recorded)
            was, grader = self.cassette.model, redact_secrets(self._grader, self._secrets)
            changes = [f"the grader was {was}, is {grader}"] if grader is not None and was not in (None, grader) else []
            if recorded.get("fingerprint") != compute_fingerprint(now):
                edited = "its 'request' was edited by hand: delete 'request' there to make the turn a hand-written one"
                changes += list(_compare_documents(recorded, now)) or [edited]
            if changes:
                change_lines = "\n".join(f"  {line}" for line in changes[:_MAX_CHANGES])
                raise StaleCassetteError(
                    f"{self.cassette.file}: turn {self._position + 1} grades something else:\n{change_lines}\n"
                    f"Grade it again: {self._build_command()}"
                )
        self._position += 1
        return turns[self._position - 1].reply

    async def aclose(self) -> None:
        """Nothing is held."""

    def _build_command(self) -> str:
        grader = self._grader or self.cassette.model
        option = quote(f"--evalkit-grader={redact_secrets(grader, self._secrets)}") if grader else ANY_GRADER
        return _GRADES_COMMAND.format("stale", option)


def _compare_documents(recorded: JsonObject, now: JsonObject) -> Iterator[str]:
    """List what changed, by the documents that were graded where both can be read."""
    was, new = _parse_document(recorded), _parse_document(now)
    if was is None or new is None:
        yield from compare_requests(recorded, now)
        return
    if recorded.get("system") != now.get("system"):
        yield "evalkit's own instruction to the grader changed"
    yield from (
        f"settings: {item}" for item in compare_values(recorded.get("settings") or {}, now.get("settings") or {})
    )
    old, response = ((item.get("evidence") or {}).pop("response", None) for item in (was, new))
    yield from compare_values(was, new)
    if old == response:
        return
    if isinstance(old, str) and isinstance(response, str) and max(len(old), len(response)) > _SHORT:
        # Of a long text the beginning, which is what a value is shown by, tells nothing.
        yield f"evidence.response changed:{format_line_changes(old, response)}"
    else:
        yield from compare_values({"evidence": {"response": old}}, {"evidence": {"response": response}})


def _parse_document(request: JsonObject) -> JsonDict | None:
    messages = request.get("messages") or [{}]
    try:
        document = json.loads(messages[0].get("user", ""))
    except (ValueError, AttributeError, TypeError):
        return None
    return document if isinstance(document, dict) and isinstance(document.get("evidence"), dict) else None
