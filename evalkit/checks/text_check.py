"""`<argument>_contains` and `<argument>_excludes`: what the text of an argument must say."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, ClassVar

from msgspec import Struct
from msgspec.structs import replace

from evalkit.checks.call_checks import arguments_of
from evalkit.checks.evidence import Evidence
from evalkit.checks.phrases import Phrase, Phrases
from evalkit.checks.reading import Path
from evalkit.checks.reasons import call_reason, failed_call, failing, place_of
from evalkit.model.template import Reference
from evalkit.model.transcript import FunctionCall
from evalkit.model.verdict import CheckResult
from evalkit.operators.shown import shown, type_shown

_MISSING: Any = object()


class TextCheck(Struct, frozen=True):
    """`<argument>_contains` and `<argument>_excludes`: phrases in the text of one argument."""

    argument: str
    phrases: Phrases
    excludes: bool
    path: Path

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

    def _value(self, call: FunctionCall) -> Any:
        arguments = arguments_of(call)
        return arguments.get(self.argument, _MISSING) if isinstance(arguments, dict) else _MISSING

    def _wrong(self, value: Any, evidence: Evidence) -> list[Phrase]:
        """The phrases that are missing, or that are found and excluded; all of them where there is no text."""
        if value is _MISSING or value is None:
            return list(self.phrases.items)
        texts = evidence.texts(value)
        return self.phrases.found(texts) if self.excludes else self.phrases.missing(texts)

    def holds(self, call: FunctionCall, evidence: Evidence) -> bool:
        value = self._value(call)
        if value is _MISSING or value is None:
            return False
        if not self.excludes:
            return self.phrases.all_in(evidence.texts(value))
        return not self.phrases.found(evidence.texts(value))

    def passed(self, call: FunctionCall) -> CheckResult:
        return _text_passing(self.argument, self.excludes, len(self.phrases.items))

    def failed(self, call: FunctionCall, evidence: Evidence) -> CheckResult:
        value = self._value(call)
        if value is _MISSING or value is None:
            return self._no_text(call, value)
        verb, code = ("contains", "text_forbidden") if self.excludes else ("does not contain", "text_missing")
        reasons, lines = [], []
        for phrase in self._wrong(value, evidence):
            lines.append(f"{self.argument} {verb} {shown(phrase.text)}")
            detail = {"path": (self.argument,), "expected": phrase.text, "actual": value}
            reasons.append(call_reason(code, lines[-1], call, phrase.place, **detail))
        return failing(self.key, reasons, lines)

    def _no_text(self, call: FunctionCall, value: Any) -> CheckResult:
        wanted = f"a text {'without' if self.excludes else 'that contains'} {self.phrases.listed()}"
        if value is None:
            code, what = "text_missing", "is null"
        else:
            code, what = "missing_argument", f"is missing ({_sent(call)})"
        message = f"{self.argument} {what}, expected {wanted}"
        return failed_call(self.key, code, message, call, place_of(self.path), path=(self.argument,))

    def counted(self, call: FunctionCall, evidence: Evidence) -> tuple[int, int]:
        return len(self.phrases.items) - len(self._wrong(self._value(call), evidence)), len(self.phrases.items)


@cache
def _text_passing(argument: str, excludes: bool, count: int) -> CheckResult:
    key, verb = (f"{argument}_excludes", "contains none of") if excludes else (f"{argument}_contains", "contains")
    return CheckResult(check=key, message=f"{argument} {verb} {count} phrase{'' if count == 1 else 's'}")


def _sent(call: FunctionCall) -> str:
    arguments = arguments_of(call)
    if not isinstance(arguments, dict):
        return f"the arguments are {type_shown(arguments)}"
    return f"sent: {', '.join(map(str, arguments))}" if arguments else "no arguments were sent"
