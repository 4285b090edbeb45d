"""The older keys of the project whose cases must run unchanged, each said with today's checks."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from evalkit.checks.call_checks import ValuesCheck, bind_check, describe_failure, get_arguments
from evalkit.checks.evidence import Evidence, check_references
from evalkit.checks.phrases import Phrases, read_phrases
from evalkit.checks.reader import ExpectationReader
from evalkit.checks.reasons import build_failure, build_pass, build_run_failure, describe_call, format_place
from evalkit.checks.response import judge_phrases
from evalkit.errors import KeyPath
from evalkit.model.template import TemplateError
from evalkit.model.transcript import FunctionCall
from evalkit.model.verdict import CheckResult

EMAIL, TICKET = "send_email", "create_ticket"


def find_successful_calls(evidence: Evidence, name: str) -> list[FunctionCall]:
    """The calls of a function that succeeded."""
    return [call for call in evidence.calls if call.name == name and call.outcome == "ok"]


class SuccessfulCall(Struct, frozen=True):
    """`email_sent` and `ticket_created`: a successful call of the function exists, or none."""

    key: str
    function: str
    expected: bool
    path: KeyPath

    def judge(self, evidence: Evidence) -> CheckResult:
        successes = find_successful_calls(evidence, self.function)
        if bool(successes) is self.expected:
            return build_pass(self.key, f"{self.function} {'succeeded' if successes else 'did not succeed'}")
        place = format_place(self.path)
        if successes:
            message = f"{self.function} succeeded ({describe_call(successes[0])}), expected no successful call"
            return build_run_failure(self.key, "unexpected_call", message, place)
        attempts = [call for call in evidence.calls if call.name == self.function]
        if attempts:
            message = f"{self.function} did not succeed: {describe_call(attempts[-1])} failed with {describe_failure(attempts[-1])}"  # noqa: E501
            return build_run_failure(self.key, "wrong_outcome", message, place)
        return build_run_failure(self.key, "missing_call", f"{self.function} was not called", place)


class TicketFields(Struct, frozen=True):
    """`ticket_fields`: `arguments_contain` of the first successful `create_ticket`."""

    fields: ValuesCheck
    path: KeyPath

    key = "ticket_fields"

    def judge(self, evidence: Evidence) -> CheckResult:
        successes = find_successful_calls(evidence, TICKET)
        if not successes:
            message = f"no successful call of {TICKET} whose arguments could be compared"
            return build_run_failure(self.key, "missing_call", message, format_place(self.path))
        fields = bind_check(self.fields, evidence.resolve)
        if fields.holds(successes[0], evidence):
            return build_pass(self.key, f"found in the arguments of {describe_call(successes[0])}")
        return build_failure(self.key, fields.failed(successes[0], evidence).reasons)


class BodyText(Struct, frozen=True):
    """`response_body_contains` and `response_body_excludes`: the last email's body, else the response."""

    key: str
    phrases: Phrases
    path: KeyPath

    def judge(self, evidence: Evidence) -> CheckResult:
        try:
            phrases = self.phrases.bind(evidence.resolve) if self.phrases.has_templates else self.phrases
        except TemplateError as error:
            return build_run_failure(self.key, "unresolved_reference", str(error), format_place(self.path))
        excludes = self.key.endswith("_excludes")
        successes = find_successful_calls(evidence, EMAIL)
        if not successes:
            response = evidence.transcript.response
            return judge_phrases(self.key, "response", phrases, excludes, response, evidence.fold_texts(response))
        call = successes[-1]
        arguments = get_arguments(call)
        body = arguments.get("body") if isinstance(arguments, dict) else None
        if body is None:
            message = f"{describe_call(call)}: body is missing, so it can't be searched for {phrases.format_list()}"
            return build_run_failure(self.key, "missing_argument", message, format_place(self.path))
        return judge_phrases(
            self.key, f"body of {describe_call(call)},", phrases, excludes, body, evidence.fold_texts(body), call.index
        )


def read_succeeded(reader: ExpectationReader, path: KeyPath, value: Any) -> SuccessfulCall | None:
    key = str(path[-1])
    expected = reader.read_boolean(path, value)
    function = EMAIL if key == "email_sent" else TICKET
    return None if expected is None else SuccessfulCall(key, function, expected, path)


def read_body_text(reader: ExpectationReader, path: KeyPath, value: Any) -> BodyText | None:
    phrases = read_phrases(reader, path, value)
    check_references(reader, path, value)
    return BodyText(str(path[-1]), phrases, path) if phrases else None


def read_ticket_fields(reader: ExpectationReader, path: KeyPath, value: Any) -> TicketFields | None:
    if not isinstance(value, dict) or not value:
        reader.report_wrong(path, value, "a mapping of arguments to values")
        return None
    matcher = reader.read_matcher(path, value, "contain")
    check_references(reader, path, value)
    if matcher is None:
        return None
    return TicketFields(ValuesCheck("arguments_contain", matcher, path, source=value), path)
