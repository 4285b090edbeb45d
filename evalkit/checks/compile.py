"""Compiling `expected_output` and `on_fault` into expectations, with everything that is wrong with them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from msgspec.structs import replace

from evalkit.checks.call_checks import find_text_argument
from evalkit.checks.call_keys import list_call_keys
from evalkit.checks.calls import ForbiddenCalls, GroundedCalls
from evalkit.checks.contradictions import check_across_keys
from evalkit.checks.custom_checks import read_custom
from evalkit.checks.evidence import COMPLETED
from evalkit.checks.expectation import Expectation
from evalkit.checks.expected_calls import ExpectedCallList
from evalkit.checks.expected_key import Demanded, ExpectationDraft
from evalkit.checks.expected_keys import find_expected_key, list_expected_keys
from evalkit.checks.judge_criteria import JudgeCriteria, JudgeKey
from evalkit.checks.list_keys import ExpectedCallsKey
from evalkit.checks.reader import ExpectationReader, suggest
from evalkit.checks.run_checks import StopReason
from evalkit.errors import KeyPath, PathProblem, format_path
from evalkit.fields.reader import describe_unknown_key
from evalkit.jsonvalue import JsonObject
from evalkit.operators.base import JUDGE, SIMILAR, holds_judge, holds_operator
from evalkit.records.case import Declaration
from evalkit.records.registry import CHECKS
from evalkit.text.format import describe_type, format_value

_CALLS = ExpectedCallsKey.name
# Demands that have fields of their own in an `Expectation`.
_WITH_FIELDS = (ExpectedCallList, ForbiddenCalls, GroundedCalls, JudgeCriteria, StopReason)


def compile_expectation(
    expected: object,
    *,
    path: KeyPath = ("expected_output",),
    declarations: Mapping[str, Declaration] | None = None,
    input: object = None,
    defaults: Mapping[str, JsonObject] | None = None,
    is_open: bool = False,
) -> tuple[Expectation, list[PathProblem]]:
    """Compile `expected_output`. The Expectation can be used only if there are no problems.

    `declarations` are the functions known when the case is loaded, by canonical name; without any, names of functions
    and arguments are not checked; `is_open`: other functions may be named. `input` is the case's, where
    ``{{ input... }}`` is looked up; `defaults` are those of arguments, by function, beside the declared ones. Each
    problem has the path of its place, starting with `path`.
    """
    reader = ExpectationReader(
        path, declarations or {}, input, defaults, is_open=is_open, outer_keys=list_expected_keys()
    )
    if not isinstance(expected, dict):
        reader.report_wrong(path, expected, "a mapping of what is expected")
        return Expectation(), reader.problems
    return _Compilation(reader, expected).run(), reader.problems


class _Compilation:
    def __init__(self, reader: ExpectationReader, expected: dict[Any, Any]) -> None:
        self.path = reader.root
        self.reader = reader
        self.expected: dict[str, Any] = {key: value for key, value in expected.items() if self._is_known(key)}

    def _is_known(self, key: object) -> bool:
        if key in list_expected_keys() or (isinstance(key, str) and key in CHECKS):
            return True
        names = [*list_expected_keys(), *CHECKS]
        hint = ""
        if isinstance(key, str):
            hint = suggest(key, names)
            if elsewhere := CHECKS.explain_elsewhere(key, is_like=False):
                hint = elsewhere
            elif key in list_call_keys():
                hint = f"; it belongs in a call of {_CALLS}"
            elif find_text_argument(key) and not get_close_matches(key, names, 1, 0.85):
                hint = f"; it belongs in a call of {_CALLS}{hint.replace('; did', ', or did')}"
            elif not hint:
                hint = CHECKS.explain_elsewhere(key)
                hint = hint or f"; a key of your own needs a check registered with @evalkit.check({format_value(key)})"
        self.reader.report_unknown_key(self.path, key, names, hint)
        return False

    def run(self) -> Expectation:
        expected, reader = self.expected, self.reader
        draft = ExpectationDraft(reader)
        found = [(name, find_expected_key(name), value) for name, value in expected.items()]
        demands: list[Demanded] = []
        for name, key, value in sorted(found, key=lambda item: item[1] is None or not item[1].is_modifier):
            path = (*self.path, name)
            demand = read_custom(reader, path, value) if key is None else key.read(draft, path, value)
            demands += [] if demand is None else [demand]
        only_modifies = all(key is not None and key.is_modifier for _, key, _ in found)
        if not reader.problems and (not demands or only_modifies):
            self._report_no_expectation()
        calls = next((demand for demand in demands if isinstance(demand, ExpectedCallList)), None)
        forbidden = next((demand for demand in demands if isinstance(demand, ForbiddenCalls)), None)
        check_across_keys(reader, expected, calls.leaves if calls else (), forbidden.forbidden if forbidden else ())
        stop_reason = next((demand for demand in demands if isinstance(demand, StopReason)), None)
        return Expectation(
            calls=calls,
            forbidden=forbidden,
            grounded=next((demand for demand in demands if isinstance(demand, GroundedCalls)), None),
            valid_arguments=draft.valid_arguments,
            stop_reason=stop_reason or StopReason(COMPLETED, self.path, is_explicit=False),
            checks=tuple(demand for demand in demands if not isinstance(demand, _WITH_FIELDS)),
            aliases=reader.aliases,
            graded=next((demand for demand in demands if isinstance(demand, JudgeCriteria)), None),
            has_judged=holds_operator(expected, JUDGE, SIMILAR),
        )

    def _report_no_expectation(self) -> None:
        """Report a case that can't fail, and so is no case."""
        keys = ", ".join(f"'{key}'" for key in self.expected)
        verb = f"demand{'s' if len(self.expected) == 1 else ''}"
        content = f"only {keys}, which {verb} nothing" if self.expected else "empty"
        message = f"{self.reader.format_place(self.path)} is {content}; write what must hold, for example {_CALLS}"
        self.reader.add_problem(self.path, message, "no_expectation")


_ON_FAULT: KeyPath = ("on_fault",)
_NO_DEMANDS = Expectation(valid_arguments=False)


def compile_on_fault(
    on_fault: object, function: str, *, declarations: Mapping[str, Declaration] | None = None, input: object = None
) -> Expectation:
    """Compile the demands on a run in which `function` fails: its own, and those for every function.

    A key under the function's name replaces the same key for every function; null takes it away. Without any key the
    run must not raise, and make no call that nothing answers.
    """
    if not isinstance(on_fault, dict):
        return _NO_DEMANDS
    demands = on_fault.get(function) or {}
    shared = {key: value for key, value in _list_shared(on_fault).items() if key not in demands}
    function_keys = _drop_nulls(demands) if not _is_expectation(function) else {}
    expectation = _NO_DEMANDS
    for keys, path in ((shared, _ON_FAULT), (function_keys, (*_ON_FAULT, function))):
        if keys:
            second, _ = compile_expectation(keys, path=path, declarations=declarations, input=input)
            first = expectation
            expectation = replace(
                second,
                calls=second.calls or first.calls,
                forbidden=second.forbidden or first.forbidden,
                grounded=second.grounded or first.grounded,
                valid_arguments=keys.get("valid_arguments", first.valid_arguments),
                stop_reason=second.stop_reason if second.stop_reason.is_explicit else first.stop_reason,
                checks=(*first.checks, *second.checks),
            )
    return expectation


def find_on_fault_problems(
    on_fault: object,
    functions: Iterable[str],
    *,
    declarations: Mapping[str, Declaration] | None = None,
    input: object = None,
) -> list[PathProblem]:
    """Find everything that is wrong with `on_fault`. `functions` are those that the case declares, mocks or expects."""

    def find_problems(keys: dict[str, Any], path: KeyPath) -> list[PathProblem]:
        problems = compile_expectation(keys, path=path, declarations=declarations, input=input)[1] if keys else []
        for key, value in keys.items():
            if key == JudgeKey.name or holds_judge(value):
                message = (
                    f"{format_path((*path, key))}: no model grades what happens under a fault; say it by other keys"
                )
                problems.append(PathProblem((*path, key), message, at_key=True))
        return problems

    if on_fault is None:
        return []
    if not isinstance(on_fault, dict):
        message = f"on_fault must be a mapping of expectations and of function names, got {describe_type(on_fault)}"
        return [PathProblem(_ON_FAULT, message)]
    names = list(dict.fromkeys(functions))
    problems = find_problems(_list_shared(on_fault), _ON_FAULT)
    for key, value in on_fault.items():
        if _is_expectation(key):
            continue
        if key not in names:
            place = "on_fault, which is neither an expectation nor a function of this case"
            message = describe_unknown_key(key, place, [*names, *list_expected_keys(), *CHECKS])
            problems.append(PathProblem((*_ON_FAULT, str(key)), message, at_key=True))
        elif value is not None and not isinstance(value, dict):
            message = f"on_fault.{key} must be a mapping of what is expected, got {describe_type(value)}"
            problems.append(PathProblem((*_ON_FAULT, key), message))
        else:
            problems += find_problems(_drop_nulls(value), (*_ON_FAULT, key))
    return problems


def _is_expectation(key: object) -> bool:
    return key in list_expected_keys() or key in CHECKS


def _list_shared(on_fault: dict[Any, Any]) -> dict[str, Any]:
    return {key: value for key, value in _drop_nulls(on_fault).items() if _is_expectation(key)}


def _drop_nulls(keys: object) -> dict[Any, Any]:
    """Drop the keys that null takes away."""
    return {key: value for key, value in keys.items() if value is not None} if isinstance(keys, dict) else {}


def allow_stop_reason(expectation: Expectation, stop_reason: str) -> Expectation:
    """Return an expectation for which a run that ended with `stop_reason` is as good as one that completed."""
    if expectation.stop_reason.is_explicit or stop_reason == COMPLETED:
        return expectation
    return replace(expectation, stop_reason=StopReason(stop_reason, (), is_explicit=False))
