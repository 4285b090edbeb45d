"""Compiling `expected_output` and `on_fault` into expectations, with everything that is wrong with them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from functools import partial
from typing import Any, TypeVar

from msgspec.structs import replace

from evalkit.checks.approvals import read_approvals
from evalkit.checks.call_checks import find_text_argument
from evalkit.checks.call_keys import list_call_keys
from evalkit.checks.call_results import read_grounded
from evalkit.checks.calls import GroundedCalls
from evalkit.checks.contradictions import check_across_keys
from evalkit.checks.evidence import COMPLETED
from evalkit.checks.expectation import Expectation, RunCheck
from evalkit.checks.expected_calls import ExpectedCallList, is_plain_list
from evalkit.checks.handoffs import read_handoffs
from evalkit.checks.keys import (
    BUDGETS,
    CALL_ORDERS,
    EXTRA_CALLS,
    MODIFIERS,
    SCORES,
    list_expected_keys,
)
from evalkit.checks.legacy_keys import read_body_text, read_succeeded, read_ticket_fields
from evalkit.checks.read_calls import CallReader, SequenceReader, read_forbidden
from evalkit.checks.reader import ExpectationReader, find_declared_arguments, list_declared_values, suggest
from evalkit.checks.response import read_response_json, read_response_matches, read_response_text
from evalkit.checks.run_checks import (
    StopReason,
    read_budget,
    read_criteria,
    read_custom,
    read_final_call,
    read_identical_calls,
    read_instruction,
    read_model_failure,
    read_state,
    read_stop_reason,
)
from evalkit.errors import KeyPath, PathProblem, did_you_mean, format_path
from evalkit.fields.reader import describe_unknown_key
from evalkit.jsonvalue import JsonObject
from evalkit.model.case import Declaration
from evalkit.model.registry import CHECKS
from evalkit.operators.base import JUDGE, SIMILAR, holds_judge, holds_operator
from evalkit.text.format import describe_type, format_value

_READERS: dict[str, Callable[[ExpectationReader, KeyPath, Any], RunCheck | None]] = {
    "final_function_call": read_final_call,
    "response_contains": read_response_text,
    "response_excludes": read_response_text,
    "response_matches": read_response_matches,
    "response_json": read_response_json,
    "expected_handoffs": read_handoffs,
    "expected_delegations": read_handoffs,
    "max_identical_calls": read_identical_calls,
    "state": read_state,
    "state_contains": read_state,
    "stop_reason": read_stop_reason,
    "model_failure": read_model_failure,
    "scenario_instruction_used": read_instruction,
    "email_sent": read_succeeded,
    "ticket_created": read_succeeded,
    "ticket_fields": read_ticket_fields,
    "response_body_contains": read_body_text,
    "response_body_excludes": read_body_text,
    **dict.fromkeys(BUDGETS, read_budget),
}
_CALLS = "expected_function_calls"
T = TypeVar("T")


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
        valid = self._read("valid_arguments", reader.read_boolean) is not False
        ignored = self._read("ignored_arguments", reader.read_names) or ()
        call_reader = CallReader(reader, valid_arguments=valid, ignored=ignored)
        calls = self._read_calls(call_reader)
        forbidden = self._read("forbidden_function_calls", partial(read_forbidden, call_reader))
        grounded = self._read("grounded", self._read_grounded)
        graded = self._read("judge", partial(read_criteria, reader))
        approvals = self._read("expected_approvals", partial(read_approvals, call_reader))
        read = (
            _READERS.get(key, read_custom)(reader, (*self.path, key), value)
            for key, value in expected.items()
            if key in _READERS or key not in list_expected_keys()
        )
        checks = [check for check in (approvals, *read) if check is not None]
        if not reader.problems and not (
            any((calls, forbidden, grounded, graded, checks)) and expected.keys() - MODIFIERS
        ):
            self._report_no_expectation()
        check_across_keys(reader, expected, calls.leaves if calls else (), forbidden.forbidden if forbidden else ())
        stop_reason = next((check for check in checks if isinstance(check, StopReason)), None)
        return Expectation(
            calls=calls,
            forbidden=forbidden,
            grounded=grounded,
            valid_arguments=valid,
            stop_reason=stop_reason or StopReason(COMPLETED, self.path, is_explicit=False),
            checks=tuple(check for check in checks if check is not stop_reason),
            aliases=reader.aliases,
            graded=graded,
            has_judged=holds_operator(expected, JUDGE, SIMILAR),
        )

    def _read(self, key: str, read: Callable[[KeyPath, Any], T | None]) -> T | None:
        """Read the value of `key`; None where there is none."""
        return read((*self.path, key), self.expected[key]) if key in self.expected else None

    def _read_calls(self, calls: CallReader) -> ExpectedCallList | None:
        in_order = self._read("call_order", partial(self.reader.read_choice, choices=CALL_ORDERS)) != "any"
        extras = self._read("extra_calls", partial(self.reader.read_choice, choices=EXTRA_CALLS)) == "allow"
        min_score = self._read("min_score", self._read_min_score) or ()
        if _CALLS not in self.expected:
            return None
        path = (*self.path, _CALLS)
        sequence = SequenceReader(self.reader, calls)
        plan = sequence.read_plan(path, self.expected[_CALLS], in_order=in_order, extras=extras)
        if plan is None:
            return None
        return ExpectedCallList(path, tuple(sequence.leaves), plan, sequence.groups, min_score, is_plain_list(plan))

    def _read_min_score(self, path: KeyPath, value: object) -> tuple[tuple[str, float], ...]:
        scores = value if isinstance(value, dict) else {"f1": value}
        if not scores:
            self.reader.report_wrong(path, value, "a number from 0 to 1, or a mapping of scores to such numbers")
        minimums = []
        for name, score in scores.items():
            if name not in SCORES:
                self.reader.report_unknown_key(path, name, SCORES)
                continue
            score_path = (*path, name) if isinstance(value, dict) else path
            minimum = self.reader.read_number(score_path, score, minimum=0, maximum=1)
            if minimum is not None:
                minimums.append((name, minimum))
        return tuple(minimums)

    def _read_grounded(self, path: KeyPath, value: object) -> GroundedCalls | None:
        names = read_grounded(self.reader, path, value)
        if names is None:
            return None
        declared = self.reader.declarations
        argument_sets = [find_declared_arguments(declaration) for declaration in declared.values()]
        if declared and None not in argument_sets and not self.reader.is_open:
            arguments = sorted(set().union(*(names or () for names in argument_sets)))
            for name in names:
                if name not in arguments:
                    hint = did_you_mean(name, arguments)
                    message = f"{self.reader.format_place(path)}: no function has an argument '{name}'{hint}"
                    self.reader.add_problem(path, message, "unknown_argument")
        values = tuple((name, list_declared_values(declaration)) for name, declaration in declared.items())
        return GroundedCalls(names, path, values)

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
            if key == "judge" or holds_judge(value):
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
