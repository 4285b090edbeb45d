"""`<argument>_contains` and `<argument>_excludes`: what the text of an argument must say."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, ClassVar

from msgspec import Struct
from msgspec.structs import replace

from evalkit.checks.call_checks import get_arguments
from evalkit.checks.evidence import Evidence
from evalkit.checks.phrases import Phrase, Phrases
from evalkit.checks.reading import KeyPath
from evalkit.checks.reasons import build_call_failure, build_call_reason, build_failure, format_place
from evalkit.model.template import Reference
from evalkit.model.transcript import FunctionCall
from evalkit.model.verdict import CheckResult
from evalkit.operators.shown import describe_type, format_value

_NO_ARGUMENT: Any = object()


class TextCheck(Struct, frozen=True):
    """`<argument>_contains` and `<argument>_excludes`: phrases in the text of one argument."""

    argument: str
    phrases: Phrases
    excludes: bool
    path: KeyPath

    on_arguments: ClassVar[bool] = True

    @property
    def key(self) -> str:
        return f"{self.argument}_{'excludes' if self.excludes else 'contains'}"

    @property
    def size(self) -> int:
        return len(self.phrases.items)

    @property
    def has_templates(self) -> bool:
        return self.phrases.has_templates

    def bind(self, resolve: Callable[[Reference], Any]) -> TextCheck:
        return replace(self, phrases=self.phrases.bind(resolve))

    def _get_value(self, call: FunctionCall) -> Any:
        arguments = get_arguments(call)
        return arguments.get(self.argument, _NO_ARGUMENT) if isinstance(arguments, dict) else _NO_ARGUMENT

    def _find_wrong(self, value: Any, evidence: Evidence) -> list[Phrase]:
        """The phrases that are missing, or that are found and excluded; all of them where there is no text."""
        if value is _NO_ARGUMENT or value is None:
            return list(self.phrases.items)
        texts = evidence.fold_texts(value)
        return self.phrases.find_present(texts) if self.excludes else self.phrases.find_missing(texts)

    def is_met(self, call: FunctionCall, evidence: Evidence) -> bool:
        value = self._get_value(call)
        if value is _NO_ARGUMENT or value is None:
            return False
        if not self.excludes:
            return self.phrases.match_all(evidence.fold_texts(value))
        return not self.phrases.find_present(evidence.fold_texts(value))

    def report_pass(self, call: FunctionCall) -> CheckResult:
        return _build_text_pass(self.argument, self.excludes, len(self.phrases.items))

    def report_failure(self, call: FunctionCall, evidence: Evidence) -> CheckResult:
        value = self._get_value(call)
        if value is _NO_ARGUMENT or value is None:
            return self._report_no_text(call, value)
        verb, code = ("contains", "text_forbidden") if self.excludes else ("does not contain", "text_missing")
        reasons, lines = [], []
        for phrase in self._find_wrong(value, evidence):
            lines.append(f"{self.argument} {verb} {format_value(phrase.text)}")
            detail = {"path": (self.argument,), "expected": phrase.text, "actual": value}
            reasons.append(build_call_reason(code, lines[-1], call, phrase.place, **detail))
        return build_failure(self.key, reasons, lines)

    def _report_no_text(self, call: FunctionCall, value: Any) -> CheckResult:
        expected = f"a text {'without' if self.excludes else 'that contains'} {self.phrases.format_list()}"
        if value is None:
            code, problem = "text_missing", "is null"
        else:
            code, problem = "missing_argument", f"is missing ({_describe_sent(call)})"
        message = f"{self.argument} {problem}, expected {expected}"
        return build_call_failure(self.key, code, message, call, format_place(self.path), path=(self.argument,))

    def count_met(self, call: FunctionCall, evidence: Evidence) -> tuple[int, int]:
        return len(self.phrases.items) - len(self._find_wrong(self._get_value(call), evidence)), len(self.phrases.items)


@cache
def _build_text_pass(argument: str, excludes: bool, count: int) -> CheckResult:
    key, verb = (f"{argument}_excludes", "contains none of") if excludes else (f"{argument}_contains", "contains")
    return CheckResult(check=key, message=f"{argument} {verb} {count} phrase{'' if count == 1 else 's'}")


def _describe_sent(call: FunctionCall) -> str:
    arguments = get_arguments(call)
    if not isinstance(arguments, dict):
        return f"the arguments are {describe_type(arguments)}"
    return f"sent: {', '.join(map(str, arguments))}" if arguments else "no arguments were sent"
