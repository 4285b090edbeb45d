"""Checks that users register with `@evalkit.check("key")`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from evalkit.checks.evidence import Evidence
from evalkit.checks.reading import Path, Reader
from evalkit.checks.reasons import failing, passing, place_of, run_reason, unmeasured
from evalkit.checks.references import check_references
from evalkit.errors import UsageError
from evalkit.model.registry import CHECKS
from evalkit.model.template import Template, TemplateError, parse, plain, render
from evalkit.model.verdict import ERROR, FAILED, PASSED, CheckResult
from evalkit.operators.shown import shown

F = TypeVar("F", bound=Callable[..., Any])


def check(key: str) -> Callable[[F], F]:
    """Register a function as the check of `key` in `expected_output`: ``fn(expected, transcript)``.

    `expected` is the value under the key, templates rendered. The check passes if it returns None, True or an empty
    text or list; a text, or a list of texts, says why it fails; False fails without saying why. It may also return a
    CheckResult. Raising is no way to fail: the case is then an error. Checks are synchronous.

    Raises UsageError for a key that evalkit itself has.
    """
    from evalkit.checks.keys import EXPECTED_KEYS

    if key in EXPECTED_KEYS:
        raise UsageError(f"evalkit.check({key!r}): '{key}' is a key of evalkit; choose another name")
    return CHECKS.decorator(key)


class CustomCheck(Struct, frozen=True):
    """A key that a user registered. The function is looked up when judging, so that the check can be pickled."""

    key: str
    expected: Any  # with Templates where the case has templates
    path: Path
    has_templates: bool = False

    def judge(self, evidence: Evidence) -> CheckResult:
        function = CHECKS.get(self.key)
        if function is None:
            message = "can't be judged: no check of this name is registered in this process"
            return unmeasured(self.key, message, place_of(self.path), "run")
        expected = self.expected
        if self.has_templates:
            try:
                expected = plain(render(expected, evidence.resolve))
            except TemplateError as error:
                return self._failed([str(error)], "unresolved_reference")
        try:
            return self._result(function(expected, evidence.transcript))
        except Exception as error:
            return self._raised(error)

    def _raised(self, error: Exception) -> CheckResult:
        hint = "; return the reason instead of raising" if isinstance(error, AssertionError) else ""
        said = f": {error}" if str(error) else ""
        return self._broken(f"raised {type(error).__name__}{said}{hint}")

    def _broken(self, what: str) -> CheckResult:
        message = f"the check '{self.key}' {what}"
        reason = run_reason("check_raised", message, place_of(self.path), expected=self.expected)
        return CheckResult(check=self.key, status=ERROR, message=reason.message, reasons=(reason,))

    def _result(self, returned: Any) -> CheckResult:
        if isinstance(returned, CheckResult):
            return self._own(returned)
        if returned is None or returned is True or returned in ("", []):
            return passing(self.key, "passed")
        if returned is False:
            return self._failed(["returned False"])
        if isinstance(returned, str):
            return self._failed([returned])
        if isinstance(returned, list) and all(isinstance(item, str) for item in returned):
            return self._failed(returned)
        if inspect.iscoroutine(returned):
            returned.close()
            return self._broken("is asynchronous; checks are plain functions")
        return self._broken(f"returned {shown(returned)}; it may return None, a boolean, a text or a list of texts")

    def _own(self, result: CheckResult) -> CheckResult:
        """A CheckResult made by the check itself; a failure without reasons gets one."""
        if result.status not in (PASSED, FAILED, ERROR, "not_judged"):
            return self._broken(f"returned a CheckResult with status {shown(result.status)}")
        if result.status in (FAILED, ERROR) and not result.reasons:
            code = "check_failed" if result.status == FAILED else "not_measured"
            reason = run_reason(code, f"{self.key}: {result.message}", place_of(self.path))
            return replace(result, check=self.key, reasons=(reason,))
        return result

    def _failed(self, messages: list[str], code: str = "check_failed") -> CheckResult:
        expected = self.expected if code == "check_failed" else None
        place = place_of(self.path)
        reasons = [run_reason(code, f"{self.key}: {message}", place, expected=expected) for message in messages]
        return failing(self.key, reasons, messages)


def read_custom(reader: Reader, path: Path, value: Any) -> CustomCheck:
    check_references(reader, path, value)
    compiled, has_templates = _templates(reader, path, value)
    return CustomCheck(str(path[-1]), compiled if has_templates else value, path, has_templates)


def _templates(reader: Reader, path: Path, value: Any) -> tuple[Any, bool]:
    """`value` with its templates parsed, and whether there are any."""
    if isinstance(value, str):
        try:
            parsed = parse(value)
        except TemplateError as error:
            reader.problem(path, f"{reader.shown(path)}: {error}")
            return value, False
        return parsed, isinstance(parsed, Template)
    if isinstance(value, dict):
        pairs = {key: _templates(reader, (*path, key), item) for key, item in value.items()}
        return {key: item for key, (item, _) in pairs.items()}, any(found for _, found in pairs.values())
    if isinstance(value, list):
        items = [_templates(reader, (*path, index), item) for index, item in enumerate(value)]
        return [item for item, _ in items], any(found for _, found in items)
    return value, False
