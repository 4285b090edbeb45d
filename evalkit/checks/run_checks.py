"""Demands on the run as a whole: how it ends, its instruction and last call, budgets, criteria of `judge`.

Checks that users register with `@evalkit.check("key")` stand here too.
"""

from __future__ import annotations

import inspect
import json
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from evalkit.checks.absence import AbsenceDemand, Demand
from evalkit.checks.call_checks import build_mismatch_reason
from evalkit.checks.evidence import COMPLETED, Evidence
from evalkit.checks.keys import list_expected_keys
from evalkit.checks.reader import ExpectationReader, check_references
from evalkit.checks.reasons import (
    NOT_JUDGED,
    build_failure,
    build_failures,
    build_pass,
    build_reason,
    build_unmeasured,
    escape_surrogates,
    format_quantity,
)
from evalkit.errors import KeyPath, UsageError, find_nearest, format_path
from evalkit.jsonvalue import to_hashable
from evalkit.model.registry import CHECKS, get_lookup_folder
from evalkit.model.rubric import RUBRIC_KEYS, Rubric, RubricError, parse_rubric
from evalkit.model.template import Reference, Template, TemplateError, parse_template, render_templates, strip_literals
from evalkit.model.transcript import Grade, Grading, Transcript
from evalkit.model.verdict import ERROR, FAILED, PASSED, CheckResult
from evalkit.operators.base import Matcher, Resolve
from evalkit.operators.judged import (
    GradeBook,
    describe_criterion,
    describe_grade,
    describe_grader,
    quote,
    quote_value,
    record_questions,
)
from evalkit.text.format import format_value

F = TypeVar("F", bound=Callable[..., Any])


def check(key: str, *, demands_absence: bool = False, on_arguments: bool = False) -> Callable[[F], F]:
    """Register a function as the check of `key` in `expected_output`: ``fn(expected, transcript)``.

    `expected` is the value under the key, templates rendered. The check passes if it returns None, True or an empty
    text or list; a text, or a list of texts, says why it fails; False fails without saying why. It may also return a
    CheckResult. Raising is no way to fail: the case is then an error. Checks are synchronous.

    `demands_absence` says that it holds because something did not happen, `on_arguments` that it looks at the arguments
    of calls: where nobody saw a part of the run, or a trace has no arguments, the case is an error.

    Raises UsageError for a key that evalkit itself has.
    """
    if key in list_expected_keys():
        raise UsageError(f"evalkit.check({key!r}): '{key}' is a key of evalkit; choose another name")
    return CHECKS.build_decorator(key, demands_absence=demands_absence, on_arguments=on_arguments)


class CustomCheck(Demand, Struct, frozen=True):
    """A key that a user registered. The function is looked up when judging, so that the check can be pickled."""

    key: str
    expected: Any  # with Templates where the case has templates
    path: KeyPath
    folder: str | None  # for which its name is looked up
    has_templates: bool = False

    @property
    def demands_absence(self) -> bool:
        return self._get_option("demands_absence")

    @property
    def on_arguments(self) -> bool:
        return self._get_option("on_arguments")

    def _get_option(self, name: str) -> bool:
        registration = CHECKS.find(self.key, self.folder)
        return registration is not None and bool(registration.options.get(name))

    def judge(self, evidence: Evidence) -> CheckResult:
        """Call the function."""
        function = CHECKS.get(self.key, self.folder)
        if function is None:
            message = "can't be judged: no check of this name is registered in this process"
            return build_unmeasured(self.key, message, format_path(self.path), "run")
        expected = self.expected
        if self.has_templates:
            try:
                expected = strip_literals(render_templates(expected, evidence.resolve))
            except TemplateError as error:
                return self._build_failure([str(error)], "unresolved_reference")
        try:
            returned = function(expected, evidence.transcript)
            if isinstance(returned, CheckResult):
                return self._complete_result(returned)
            if returned is None or returned is True or returned in ("", []):
                return build_pass(self.key, "passed")
            if returned is False:
                return self._build_failure(["returned False"])
            if isinstance(returned, str):
                return self._build_failure([returned])
            if isinstance(returned, list) and all(isinstance(item, str) for item in returned):
                return self._build_failure(returned)
            if inspect.iscoroutine(returned):
                returned.close()
                return self._report_broken("is asynchronous; checks are plain functions")
            return self._report_broken(
                f"returned {format_value(returned)}; it may return None, a boolean, a text or a list of texts"
            )
        except Exception as error:
            hint = "; return the reason instead of raising" if isinstance(error, AssertionError) else ""
            text = f": {error}" if str(error) else ""
            return self._report_broken(f"raised {type(error).__name__}{text}{hint}")

    def _report_broken(self, problem: str) -> CheckResult:
        message = f"the check '{self.key}' {problem}"
        reason = build_reason("check_raised", message, format_path(self.path), expected=self.expected)
        return CheckResult(check=self.key, status=ERROR, message=reason.message, reasons=(reason,))

    def _complete_result(self, result: CheckResult) -> CheckResult:
        """Check a CheckResult made by the function; a failure without reasons gets one."""
        if result.status not in (PASSED, FAILED, ERROR, "not_judged"):
            return self._report_broken(f"returned a CheckResult with status {format_value(result.status)}")
        if result.status in (FAILED, ERROR) and not result.reasons:
            code = "check_failed" if result.status == FAILED else "not_measured"
            reason = build_reason(code, f"{self.key}: {result.message}", format_path(self.path))
            return replace(result, check=self.key, reasons=(reason,))
        return result

    def _build_failure(self, messages: list[str], code: str = "check_failed") -> CheckResult:
        expected = self.expected if code == "check_failed" else None
        place = format_path(self.path)
        reasons = [build_reason(code, f"{self.key}: {message}", place, expected=expected) for message in messages]
        return build_failures(self.key, reasons, messages)


def read_custom(reader: ExpectationReader, path: KeyPath, value: object) -> CustomCheck:
    """Read a key that a user registered."""
    check_references(reader, path, value)
    compiled, has_templates = _parse_templates(reader, path, value)
    return CustomCheck(str(path[-1]), compiled, path, get_lookup_folder(), has_templates)


def _parse_templates(reader: ExpectationReader, path: KeyPath, value: object) -> tuple[Any, bool]:
    """Return `value` with its templates parsed, and whether there are any."""
    if isinstance(value, str):
        try:
            parsed = parse_template(value)
        except TemplateError as error:
            reader.add_problem(path, f"{reader.format_place(path)}: {error}")
            return value, False
        return parsed, isinstance(parsed, Template)
    if isinstance(value, dict):
        pairs = {key: _parse_templates(reader, (*path, key), item) for key, item in value.items()}
        return {key: item for key, (item, _) in pairs.items()}, any(
            has_templates for _, has_templates in pairs.values()
        )
    if isinstance(value, list):
        items = [_parse_templates(reader, (*path, index), item) for index, item in enumerate(value)]
        return [item for item, _ in items], any(has_templates for _, has_templates in items)
    return value, False


_STOP_REASON_CODES = ("agent_raised", "deadline", "crashed")  # stop reasons that are codes of their own
_WORLD_STOP_REASONS = ("provider_error",)  # ends that are no fault of the agent


class StopReason(Demand, Struct, frozen=True):
    """`stop_reason`: why the run ended. Not `is_explicit`: the case does not say it, and `completed` is expected."""

    stop_reason: str
    path: KeyPath
    is_explicit: bool = True

    key = "stop_reason"

    def judge(self, evidence: Evidence) -> CheckResult | None:
        """Compare the stop reason; None where there is nothing to say: the run completed, as it should."""
        transcript = evidence.transcript
        actual = transcript.stop_reason
        if evidence.mode == "judge" and actual == COMPLETED:
            message = "not judged: calls alone do not tell how the run ended"
            return build_unmeasured(self.key, message, "", "judge") if self.is_explicit else None
        if actual == self.stop_reason:
            return build_pass(self.key, f"ended with '{actual}'") if self.is_explicit else None
        message = f"the run ended with '{actual}', expected '{self.stop_reason}'"
        last = transcript.turns[-1] if transcript.turns else None
        if last is not None and last.finish_message and not last.calls:  # the reply that ended the run
            message += f": {last.finish_message}"
        place = format_path(self.path)
        if actual in _WORLD_STOP_REASONS:
            return build_unmeasured(self.key, message, place, evidence.mode, code=actual)
        code = actual if actual in _STOP_REASON_CODES else "stop_reason"
        return build_failure(self.key, code, message, place, expected=self.stop_reason, actual=actual)


def read_stop_reason(reader: ExpectationReader, path: KeyPath, value: object) -> StopReason | None:
    """Read `stop_reason`."""
    name = reader.read_name(path, value, "a stop reason such as 'completed' or 'max_iterations'")
    return StopReason(name, path) if name else None


class ModelFailure(Demand, Struct, frozen=True):
    """`model_failure`: a request to a model fails, and the case tests what the agent makes of it."""

    path: KeyPath

    key = "model_failure"

    def judge(self, evidence: Evidence) -> CheckResult:
        """Look for a failed request."""
        transcript = evidence.transcript
        if evidence.mode == "judge" or transcript.trace is not None:
            message = "can't be judged: a recorded run does not say which requests to a model failed"
            return build_unmeasured(self.key, message, format_path(self.path), evidence.mode)
        if transcript.failed_requests:
            return build_pass(self.key, transcript.failed_requests[-1].message)
        message = "no request to a model failed, so how the agent copes with a failure was not tested"
        return build_failure(self.key, "no_model_failure", message, format_path(self.path))


def read_model_failure(reader: ExpectationReader, path: KeyPath, value: object) -> ModelFailure | None:
    """Read `model_failure`; false demands nothing."""
    return ModelFailure(path) if reader.read_boolean(path, value) else None


class InstructionUsed(Demand, Struct, frozen=True):
    """`scenario_instruction_used`: the instruction file that the agent chose. `-` and `_` are one, case aside."""

    scenario_instruction_used: str
    path: KeyPath

    key = "scenario_instruction_used"

    def judge(self, evidence: Evidence) -> CheckResult:
        """Compare the names."""
        used, expected = evidence.transcript.instruction_used, self.scenario_instruction_used
        if used is None:
            message = "can't be judged: the agent did not report which instruction it used"
            return build_unmeasured(self.key, message, format_path(self.path), evidence.mode)
        if _fold_name(used) == _fold_name(expected):
            return build_pass(self.key, f"used '{used}'")
        message = f"the agent used instruction '{used}', expected '{expected}'"
        place = format_path(self.path)
        return build_failure(self.key, "wrong_instruction", message, place, expected=expected, actual=used)


def _fold_name(name: str) -> str:
    return name.casefold().replace("_", "-").strip()


def read_instruction(reader: ExpectationReader, path: KeyPath, value: object) -> InstructionUsed | None:
    """Read `scenario_instruction_used`."""
    name = reader.read_name(path, value, "the name of an instruction")
    return InstructionUsed(name, path) if name else None


class FinalState(Demand, Struct, frozen=True):
    """`state` or `state_contains`: the state at the end of the run, whatever the calls that led there."""

    key: str
    matcher: Matcher
    path: KeyPath

    def judge(self, evidence: Evidence) -> CheckResult:
        """Compare the state."""
        state = evidence.transcript.state
        if state is None:
            message = "the run has no state; declare input.state, or input.state_probe"
            if evidence.transcript.fault is not None:
                message = "the run broke off before its state was read"
            return build_unmeasured(self.key, f"can't be judged: {message}", format_path(self.path), evidence.mode)
        try:
            matcher = self.matcher.bind(evidence.resolve) if self.matcher.has_templates else self.matcher
        except TemplateError as error:
            return build_failure(self.key, "unresolved_reference", str(error), format_path(self.path))
        if matcher.is_match(state):
            record_questions(matcher, state, ("state",), "")
            return build_pass(self.key, "the state is as expected")
        place = format_path(self.path)
        reasons = [build_mismatch_reason("state_mismatch", item, place) for item in matcher.explain(state, ("state",))]
        return build_failures(self.key, reasons)


def read_state(reader: ExpectationReader, path: KeyPath, value: object) -> FinalState | None:
    """Read `state`, which is equal as a whole, or `state_contains`, partial over keys."""
    key = str(path[-1])
    matcher = reader.read_matcher(path, value, "equal" if key == "state" else "partial")
    check_references(reader, path, value)
    return None if matcher is None else FinalState(key, matcher, path)


class FinalCall(AbsenceDemand, Struct, frozen=True):
    """`final_function_call`: the function that is called last, whether or not that call succeeds."""

    final_function_call: str
    path: KeyPath

    key = "final_function_call"

    def judge(self, evidence: Evidence) -> CheckResult:
        """Compare the name of the last call."""
        names, expected = [call.name for call in evidence.calls], self.final_function_call
        place = format_path(self.path)
        if not names:
            return build_failure(self.key, "missing_call", f"no call was made, expected {expected} as the last", place)
        if names[-1] == expected:
            return build_pass(self.key, f"{expected} was called last")
        message = f"the last call is {names[-1]}, expected {expected}"
        if expected in names:
            number = len(names) - names[::-1].index(expected)
            code, message = "wrong_order", f"{message}, which was call {number} of {len(names)}"
        else:
            nearest = find_nearest(expected, names)
            hint = f" ({nearest!r} was)" if nearest else ""
            code, message = "missing_call", f"{message}, which was not called{hint}"
        return build_failure(self.key, code, message, place, expected=expected, actual=names[-1])


def read_final_call(reader: ExpectationReader, path: KeyPath, value: object) -> FinalCall | None:
    """Read `final_function_call`."""
    name = reader.read_function(path, value)
    return FinalCall(name, path) if name else None


class IdenticalCalls(AbsenceDemand, Struct, frozen=True):
    """`max_identical_calls`: how often a function may be called with the same arguments, failed calls included."""

    limit: int
    path: KeyPath

    key = "max_identical_calls"
    on_arguments = True

    def judge(self, evidence: Evidence) -> CheckResult:
        """Count the calls that are the same."""
        counts: Counter[object] = Counter()
        reasons = []
        for call in evidence.calls:
            identity = call.name, to_hashable(call.arguments)
            counts[identity] += 1
            if counts[identity] == self.limit + 1:
                times = "once" if self.limit == 1 else f"{self.limit} times"
                message = f"the same call was made {times} before, which is all that may be"
                place = format_path(self.path)
                reasons.append(build_reason("budget_exceeded", message, place, call=call, expected=self.limit))
        if reasons:
            return build_failures(self.key, reasons)
        count = max(counts.values(), default=0)
        return build_pass(self.key, f"no call was made more than {self.limit} times, at most {count}")


def read_identical_calls(reader: ExpectationReader, path: KeyPath, value: object) -> IdenticalCalls | None:
    """Read `max_identical_calls`."""
    limit = reader.read_count(path, value)
    return None if limit is None else IdenticalCalls(limit, path)


class Budget(Demand, Struct, frozen=True):
    """A limit that a measured quantity must not exceed: `max_tokens`, `processing_time_ms`, ..."""

    key: str
    limit: float
    path: KeyPath

    @property
    def demands_absence(self) -> bool:
        return self.key not in _TIMES

    def judge(self, evidence: Evidence) -> CheckResult:
        """Compare the quantity with the limit."""
        measure, template, missing = _BUDGETS[self.key]
        actual = measure(evidence.transcript)
        place = format_path(self.path)
        if isinstance(actual, bool) or not isinstance(actual, (int, float)) or actual != actual:
            return build_unmeasured(self.key, f"can't be judged: {missing}", place, evidence.mode)
        measured = template.format(format_quantity(actual), "" if actual == 1 else "s")
        if actual <= self.limit:
            return build_pass(self.key, f"{measured}, at most {format_quantity(self.limit)}")
        message = f"{measured}, expected at most {format_quantity(self.limit)}"
        return build_failure(self.key, "budget_exceeded", message, place, expected=self.limit, actual=actual)


def _count_tokens(transcript: Transcript) -> float | None:
    usage = transcript.usage
    if usage is None:
        return None
    # No turn is without tokens: where one has none they were not counted, or the service reported nonsense.
    reported = [usage, *(turn.usage for turn in transcript.turns if turn.usage is not None)] if transcript.turns else []
    return usage.count_tokens() if all(part.count_tokens() for part in reported) else None


_NO_TIME = "the run's time was not measured"
_NO_PRICE = "the model has no known price; [tool.evalkit.prices] has none"
_NO_TOKENS = "the model's usage of tokens was not reported"
_BUDGETS: dict[str, tuple[Callable[[Transcript], float | None], str, str]] = {
    "max_model_turns": (
        lambda transcript: len(transcript.turns) or None,
        "{} model turn{}",
        "no model turn was recorded",
    ),
    "max_function_calls": (lambda transcript: len(transcript.calls), "{} function call{}", ""),
    "max_tokens": (_count_tokens, "{} token{}", _NO_TOKENS),
    "max_cost_usd": (lambda transcript: transcript.cost_usd, "{} USD", _NO_PRICE),
    "processing_time_ms": (
        lambda transcript: transcript.timing.total_ms if transcript.timing else None,
        "{} ms",
        _NO_TIME,
    ),
    "max_overhead_ms": (
        lambda transcript: transcript.timing.overhead_ms if transcript.timing else None,
        "{} ms in the agent's own code",
        _NO_TIME,
    ),
}
_TIMES = ("processing_time_ms", "max_overhead_ms")  # measured by the clock, whatever was seen
_COUNTS = ("max_model_turns", "max_function_calls", "max_tokens")


def read_budget(reader: ExpectationReader, path: KeyPath, value: object) -> Budget | None:
    """Read a budget; the last step of the path says which."""
    key = str(path[-1])
    limit = reader.read_number(path, value, is_whole=key in _COUNTS, minimum=0)
    return None if limit is None else Budget(key, limit, path)


_JUDGE = "judge"


class JudgeCriteria(Struct, frozen=True):
    """`judge`: criteria in words, which a model grades after the run. Here its grades become results.

    Nothing here asks a model: the runner does, and puts the grades into the transcript. A criterion without a grade is
    an error, never a pass. Criteria are words of the case's author. The values of templates in them are not: they are
    inserted as JSON, so that they can only be quoted text. `is_list`: each criterion has a place of its own.
    """

    criteria: tuple[Rubric, ...]
    path: KeyPath
    is_list: bool = True

    key = "judge"

    def judge(self, evidence: Evidence) -> list[CheckResult]:
        """Build a result for each criterion, or one that says why there are no grades."""
        place = format_path(self.path)
        grading = next((grading for grading in evidence.transcript.gradings if grading.place == place), None)
        if grading is None and evidence.mode == "judge":
            message = "not judged: {} is for a model to grade, in a run"
            return [
                build_unmeasured(self.key, message.format(quote(str(criterion.text))), place, "judge")
                for criterion in self.criteria
            ]
        if grading is not None and grading.skipped:
            return [CheckResult(check=self.key, status=NOT_JUDGED, message=grading.skipped)]
        if grading is not None and grading.fault is not None:
            fault = grading.fault
            if fault.measured:
                return [build_failure(self.key, fault.code, f"{self.key}: {fault.message}", place)]
            return [build_unmeasured(self.key, f"can't be graded: {fault.message}", place, "run", fault.code)]
        # The values of templates are not known here, and not compared.
        if (
            grading is None
            or len(grading.grades) != len(self.criteria)
            or not all(map(is_grade_of, grading.grades, self.criteria))
        ):
            return [build_unmeasured(self.key, "can't be judged: no model has graded it", place, "run")]
        return [self._build_result(number, grade, grading) for number, grade in enumerate(grading.grades)]

    def _build_result(self, number: int, grade: Grade, grading: Grading) -> CheckResult:
        grader = describe_grader(grading)
        words, explanation = describe_criterion(grade, self.criteria[number]), describe_grade(grade)
        # Reasons get the number of the user turn where the turns are judged, this message gets it here.
        turn = f"user turn {int(self.path[2]) + 1}: " if self.path[:2] == ("input", "turns") else ""
        message = escape_surrogates(f"{turn}{words}{explanation}")
        if grade.passed:
            return CheckResult(check=self.key, message=message, note=grader)
        place = format_path((*self.path, number) if self.is_list else self.path)
        failure = f"{self.key}: not met: {words} ({grader}){explanation}"
        reason = build_reason("judge_failed", failure, place, expected=grade.criterion, actual=grade.reason)
        return CheckResult(check=self.key, status=FAILED, message=message, reasons=(reason,), note=grader)

    def render(self, resolve: Resolve) -> tuple[Rubric, ...]:
        """Return the criteria as the model gets them. Raises TemplateError for a reference that leads nowhere."""

        def render_part(part: str | Reference) -> str:
            return part if isinstance(part, str) else quote_value(resolve(part))

        return tuple(
            rubric
            if isinstance(rubric.text, str)
            else replace(rubric, text="".join(map(render_part, rubric.text.parts)))
            for rubric in self.criteria
        )


def report_questions(book: GradeBook, mode: str) -> list[CheckResult]:
    """Build the results of `$judge` on what matched: of graded values, of those that can't be, of those not judged."""
    results = [build_unmeasured("values", f"can't be judged: {problem}", "", mode) for problem in book.problems]
    is_open = False
    for question in book.questions:
        known = book.find(question.rubric, question.value)
        if known is None:
            is_open = True
            continue
        grade, grading = known
        words = f"{describe_criterion(grade, question.rubric)}{describe_grade(grade)}"
        message = escape_surrogates(f"{question.subject}{format_path(question.path)}: {words}")
        results.append(CheckResult(check=_JUDGE, message=message, note=describe_grader(grading)))
    if is_open:
        results += _report_open(book, mode)
    return list(dict.fromkeys(results))


def _report_open(book: GradeBook, mode: str) -> list[CheckResult]:
    """Build the results for values without a grade: an error, unless nothing was to be graded."""
    fault = next((grading.fault for grading in book.gradings if grading.fault is not None), None)
    if fault is not None:
        return [build_unmeasured(_JUDGE, f"can't be graded: {fault.message}", "", "run", fault.code)]
    skipped = next((grading.skipped for grading in book.gradings if grading.skipped), "")
    if skipped:
        return [CheckResult(check=_JUDGE, status=NOT_JUDGED, message=skipped)]
    if mode == "judge":
        message = "not judged: {} is for a model to grade, in a run"
        texts = [quote(str(question.rubric.text)) for question in book.list_open()]
        return [build_unmeasured(_JUDGE, message.format(text), "", "judge") for text in texts]
    return [build_unmeasured(_JUDGE, "can't be judged: no model has graded it", "", "run")]


def is_grade_of(grade: Grade, rubric: Rubric) -> bool:
    """Return whether a grade was given to this criterion. The values of templates are not known here, nor compared."""
    if not isinstance(rubric.text, str):
        return True
    data = rubric.to_data()
    return grade.criterion == rubric.text and grade.rubric == (None if isinstance(data, str) else data)


def read_criteria(reader: ExpectationReader, path: KeyPath, value: object) -> JudgeCriteria | None:
    """Read a criterion, or a list of them. A mapping without `rubric` is words with a colon that nobody quoted."""
    is_list = isinstance(value, list)
    items = value if isinstance(value, list) else [value]
    criteria: list[Rubric] = []
    for index, item in enumerate(items):
        at = (*path, index) if is_list else path
        if isinstance(item, dict) and item and not item.keys() & set(RUBRIC_KEYS):  # tone: it is friendly
            data: object = "; ".join(
                f"{key}: {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
                for key, value in item.items()
            )
        elif (isinstance(item, dict) and item) or (isinstance(item, str) and item.strip()):
            data = item
        else:
            reader.report_wrong(at, item, "a criterion in words, or a mapping")
            continue
        check_references(reader, at, item)
        try:
            rubric = parse_rubric(data)
            text = parse_template(rubric.text) if isinstance(rubric.text, str) else rubric.text
            criteria.append(replace(rubric, text=text))
        except RubricError as error:
            reader.add_problem((*at, *error.path), f"{reader.format_place(at)}: {error}", at_key=error.at_key)
        except TemplateError as error:
            reader.add_problem(at, f"{reader.format_place(at)}: {error}")
    if not items:
        reader.report_empty_list(path, "list a criterion")
    return JudgeCriteria(tuple(criteria), path, is_list) if criteria else None
