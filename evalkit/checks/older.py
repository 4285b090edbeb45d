"""The older keys of the project whose cases must run unchanged, each said with today's checks."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from evalkit.checks.call_checks import ValuesCheck, arguments_of, bound
from evalkit.checks.evidence import Evidence
from evalkit.checks.phrases import Phrases, read_phrases
from evalkit.checks.reading import Path, Reader
from evalkit.checks.reasons import about, failed, failing, passing, place_of
from evalkit.checks.references import check_references
from evalkit.checks.response import text_result
from evalkit.checks.whole_checks import failure
from evalkit.model.template import TemplateError
from evalkit.model.transcript import FunctionCall
from evalkit.model.verdict import CheckResult

EMAIL, TICKET = "send_email", "create_ticket"


def successful(evidence: Evidence, name: str) -> list[FunctionCall]:
    """The calls of a function that succeeded."""
    return [call for call in evidence.calls if call.name == name and call.outcome == "ok"]


class Succeeded(Struct, frozen=True):
    """`email_sent` and `ticket_created`: a successful call of the function exists, or none."""

    key: str
    function: str
    expected: bool
    path: Path

    def judge(self, evidence: Evidence) -> CheckResult:
        made = successful(evidence, self.function)
        if bool(made) is self.expected:
            return passing(self.key, f"{self.function} {'succeeded' if made else 'did not succeed'}")
        place = place_of(self.path)
        if made:
            message = f"{self.function} succeeded ({about(made[0])}), expected no successful call"
            return failed(self.key, "unexpected_call", message, place)
        attempts = [call for call in evidence.calls if call.name == self.function]
        if attempts:
            message = f"{self.function} did not succeed: {about(attempts[-1])} failed with {failure(attempts[-1])}"
            return failed(self.key, "wrong_outcome", message, place)
        return failed(self.key, "missing_call", f"{self.function} was not called", place)


class TicketFields(Struct, frozen=True):
    """`ticket_fields`: `arguments_contain` of the first successful `create_ticket`."""

    fields: ValuesCheck
    path: Path

    key = "ticket_fields"

    def judge(self, evidence: Evidence) -> CheckResult:
        made = successful(evidence, TICKET)
        if not made:
            message = f"no successful call of {TICKET} whose arguments could be compared"
            return failed(self.key, "missing_call", message, place_of(self.path))
        fields = bound(self.fields, evidence.resolve)
        if fields.holds(made[0], evidence):
            return passing(self.key, f"found in the arguments of {about(made[0])}")
        return failing(self.key, fields.failed(made[0], evidence).reasons)


class BodyText(Struct, frozen=True):
    """`response_body_contains` and `response_body_excludes`: the last email's body, else the response."""

    key: str
    phrases: Phrases
    path: Path

    def judge(self, evidence: Evidence) -> CheckResult:
        try:
            phrases = self.phrases.bind(evidence.resolve) if self.phrases.has_templates else self.phrases
        except TemplateError as error:
            return failed(self.key, "unresolved_reference", str(error), place_of(self.path))
        excludes = self.key.endswith("_excludes")
        made = successful(evidence, EMAIL)
        if not made:
            response = evidence.transcript.response
            return text_result(self.key, "response", phrases, excludes, response, evidence.texts(response))
        call = made[-1]
        arguments = arguments_of(call)
        body = arguments.get("body") if isinstance(arguments, dict) else None
        if body is None:
            message = f"{about(call)}: body is missing, so it can't be searched for {phrases.listed()}"
            return failed(self.key, "missing_argument", message, place_of(self.path))
        return text_result(
            self.key, f"body of {about(call)},", phrases, excludes, body, evidence.texts(body), call.index
        )


def read_succeeded(reader: Reader, path: Path, value: Any) -> Succeeded | None:
    key = str(path[-1])
    expected = reader.boolean(path, value)
    function = EMAIL if key == "email_sent" else TICKET
    return None if expected is None else Succeeded(key, function, expected, path)


def read_body_text(reader: Reader, path: Path, value: Any) -> BodyText | None:
    phrases = read_phrases(reader, path, value)
    check_references(reader, path, value)
    return BodyText(str(path[-1]), phrases, path) if phrases else None


def read_ticket_fields(reader: Reader, path: Path, value: Any) -> TicketFields | None:
    if not isinstance(value, dict) or not value:
        reader.wrong(path, value, "a mapping of arguments to values")
        return None
    matcher = reader.matcher(path, value, "contain")
    check_references(reader, path, value)
    if matcher is None:
        return None
    return TicketFields(ValuesCheck("arguments_contain", matcher, path, written=value), path)
