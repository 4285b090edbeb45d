"""`compile_expectation`: from the mapping `expected_output` to an Expectation, with all that is wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from evalkit.checks.calls import ExpectedCallList, is_plain_list
from evalkit.checks.expectation import Expectation, RunCheck
from evalkit.checks.keys import BUDGETS, CALL_KEYS, CALL_ORDERS, EXPECTED_KEYS, EXTRA_CALLS, MODIFIERS, SCORES
from evalkit.checks.read_calls import (
    CallReader,
    SequenceReader,
    find_text_argument,
    list_declared_values,
    read_grounded,
)
from evalkit.checks.reader import ExpectationReader, find_declared_arguments, suggest
from evalkit.checks.run_checks import COMPLETED, StopReason
from evalkit.errors import KeyPath, PathProblem, did_you_mean, format_path
from evalkit.model.case import Declaration
from evalkit.model.registry import CHECKS
from evalkit.text.format import describe_type, format_value

if TYPE_CHECKING:
    from evalkit.checks.calls import ForbiddenCalls, GroundedCalls
    from evalkit.checks.criteria import JudgeCriteria


_ReadCheck = Callable[[ExpectationReader, KeyPath, Any], RunCheck | None]
# module:function of this room. Few cases have any of these keys, and a module is imported for the first that has.
_READERS = {
    "final_function_call": "run_checks:read_final_call",
    "response_contains": "response:read_response_text",
    "response_excludes": "response:read_response_text",
    "response_matches": "response:read_response_matches",
    "response_json": "response_schema:read_response_json",
    "stop_reason": "stop_reason:read_stop_reason",
    "scenario_instruction_used": "run_checks:read_instruction",
    "email_sent": "older:read_succeeded",
    "ticket_created": "older:read_succeeded",
    "ticket_fields": "older:read_ticket_fields",
    "response_body_contains": "older:read_body_text",
    "response_body_excludes": "older:read_body_text",
    **dict.fromkeys(BUDGETS, "run_checks:read_budget"),
}
_CUSTOM = "custom:read_custom"
_DEMAND_CALLS = frozenset({"final_function_call", "email_sent", "ticket_created", "ticket_fields"})
_CALLS = "expected_function_calls"


@lru_cache(maxsize=256)  # most cases have it at one and the same path
def _build_completes(path: KeyPath) -> StopReason:
    """What goes without saying: the run completes."""
    return StopReason(COMPLETED, path, is_explicit=False)


def compile_expectation(
    expected: Mapping[str, Any],
    *,
    path: KeyPath = ("expected_output",),
    declarations: Mapping[str, Declaration] | None = None,
    input: Any = None,
) -> tuple[Expectation, list[PathProblem]]:
    """Compile `expected_output`. The Expectation can be used only if there are no problems.

    `declarations` are the functions known when the case is loaded, by canonical name; without any, names of functions
    and arguments are not checked. `input` is the case's, where ``{{ input... }}`` is looked up. Each problem has the
    path of its place, starting with `path`.
    """
    return _Compilation(ExpectationReader(path, declarations or {}, input)).run(expected)


class _Compilation:
    def __init__(self, reader: ExpectationReader) -> None:
        self.path = reader.root
        self.reader = reader

    def run(self, expected: Any) -> tuple[Expectation, list[PathProblem]]:
        if not isinstance(expected, dict):
            self.reader.report_wrong(self.path, expected, "a mapping of what is expected")
            return Expectation(), self.reader.problems
        known_keys = {key: value for key, value in expected.items() if self._is_known(key)}
        valid = self._read_valid_arguments(known_keys)
        calls = CallReader(self.reader, valid_arguments=valid, ignored=self._read_ignored_arguments(known_keys))
        listed = self._read_calls(known_keys, calls)
        forbidden = self._read_forbidden(known_keys, calls)
        grounded = self._read_grounded(known_keys)
        graded = self._read_criteria(known_keys)
        checks = self._read_run_checks(known_keys)
        stop_reason = next((check for check in checks if isinstance(check, StopReason)), None)
        if not self.reader.problems:
            self._check_demands(known_keys, listed, forbidden, grounded, graded, checks)
        self._check_contradictions(known_keys, listed, forbidden)
        expectation = Expectation(
            calls=listed,
            forbidden=forbidden,
            grounded=grounded,
            valid_arguments=valid,
            stop_reason=stop_reason or _build_completes(self.path),
            checks=tuple(check for check in checks if check is not stop_reason),
            aliases=self.reader.aliases,
            graded=graded,
        )
        return expectation, self.reader.problems

    def _is_known(self, key: object) -> bool:
        if key in EXPECTED_KEYS or (isinstance(key, str) and key in CHECKS):
            return True
        names = [*EXPECTED_KEYS, *CHECKS]
        self.reader.report_unknown_key(self.path, key, names, _find_hint(key, names) if isinstance(key, str) else "")
        return False

    def _read_valid_arguments(self, expected: Mapping[str, Any]) -> bool:
        if "valid_arguments" not in expected:
            return True
        return self.reader.read_boolean((*self.path, "valid_arguments"), expected["valid_arguments"]) is not False

    def _read_ignored_arguments(self, expected: Mapping[str, Any]) -> tuple[str, ...]:
        key = "ignored_arguments"
        return tuple(self.reader.read_names((*self.path, key), expected[key]) or ()) if key in expected else ()

    def _read_choice(self, expected: Mapping[str, Any], key: str, choices: tuple[str, ...]) -> str:
        """The value of a key with a default, which is the first choice."""
        if key not in expected:
            return choices[0]
        at = (*self.path, key)
        return self.reader.read_choice(at, expected[key], choices) or choices[0]

    def _read_calls(self, expected: Mapping[str, Any], calls: CallReader) -> ExpectedCallList | None:
        in_order = self._read_choice(expected, "call_order", CALL_ORDERS) == "strict"
        extras = self._read_choice(expected, "extra_calls", EXTRA_CALLS) == "allow"
        min_score = self._read_min_score(expected)
        if _CALLS not in expected:
            return None
        at = (*self.path, _CALLS)
        sequence = SequenceReader(self.reader, calls)
        plan = sequence.read_plan(at, expected[_CALLS], in_order=in_order, extras=extras)
        if plan is None:
            return None
        return ExpectedCallList(at, tuple(sequence.leaves), plan, sequence.groups, min_score, is_plain_list(plan))

    def _read_min_score(self, expected: Mapping[str, Any]) -> tuple[tuple[str, float], ...]:
        if "min_score" not in expected:
            return ()
        at, value = (*self.path, "min_score"), expected["min_score"]
        scores = value if isinstance(value, dict) else {"f1": value}
        if not scores:
            self.reader.report_wrong(at, value, "a number from 0 to 1, or a mapping of scores to such numbers")
        minimums = []
        for name, minimum in scores.items():
            here = (*at, name) if isinstance(value, dict) else at
            if name not in SCORES:
                self.reader.report_unknown_key(at, name, SCORES)
            elif isinstance(minimum, bool) or not isinstance(minimum, (int, float)) or not 0 <= minimum <= 1:
                self.reader.report_wrong_number(here, minimum, "a number from 0 to 1")
            else:
                minimums.append((name, minimum))
        return tuple(minimums)

    def _read_forbidden(self, expected: Mapping[str, Any], calls: CallReader) -> ForbiddenCalls | None:
        key = "forbidden_function_calls"
        if key not in expected:
            return None
        from evalkit.checks.calls import read_forbidden

        return read_forbidden(calls, (*self.path, key), expected[key])

    def _read_grounded(self, expected: Mapping[str, Any]) -> GroundedCalls | None:
        if "grounded" not in expected:
            return None
        at = (*self.path, "grounded")
        names = read_grounded(self.reader, at, expected["grounded"])
        if names is None:
            return None
        declared = self.reader.declarations
        argument_sets = [find_declared_arguments(declaration) for declaration in declared.values()]
        for name in names if declared and None not in argument_sets else ():
            if not any(name in arguments for arguments in argument_sets if arguments is not None):
                hint = did_you_mean(name, sorted(set().union(*(arguments or () for arguments in argument_sets))))
                self.reader.add_problem(
                    at,
                    f"{self.reader.format_place(at)}: no function has an argument '{name}'{hint}",
                    "unknown_argument",
                )
        from evalkit.checks.calls import GroundedCalls

        return GroundedCalls(
            names, at, tuple((name, list_declared_values(declaration)) for name, declaration in declared.items())
        )

    def _read_criteria(self, expected: Mapping[str, Any]) -> JudgeCriteria | None:
        if "judge" not in expected:
            return None
        from evalkit.checks.criteria import read_criteria

        return read_criteria(self.reader, (*self.path, "judge"), expected["judge"])

    def _read_run_checks(self, expected: Mapping[str, Any]) -> list[RunCheck]:
        checks: list[RunCheck | None] = []
        for key, value in expected.items():
            at = (*self.path, key)
            if key in _READERS or key not in EXPECTED_KEYS:
                checks.append(_load_reader(_READERS.get(key, _CUSTOM))(self.reader, at, value))
        return [check for check in checks if check is not None]

    def _check_demands(self, expected: Mapping[str, Any], *demands: Any) -> None:
        """A case that can't fail is no case."""
        if any(demands) and expected.keys() - MODIFIERS:
            return
        keys = ", ".join(f"'{key}'" for key in expected)
        description = f"only {keys}, which demand{'s' if len(expected) == 1 else ''} nothing" if expected else "empty"
        message = f"{self.reader.format_place(self.path)} is {description}; write what must hold, for example {_CALLS}"
        self.reader.add_problem(self.path, message, "no_expectation")

    def _check_contradictions(
        self, expected: Mapping[str, Any], calls: ExpectedCallList | None, forbidden: ForbiddenCalls | None
    ) -> None:
        for key in ("response", "response_body"):
            excluded = f"{key}_excludes"
            if excluded in expected:
                from evalkit.checks.contradictions import check_excluded_phrases

                demanded = expected.get(f"{key}_contains")
                check_excluded_phrases(self.reader, (*self.path, excluded), demanded, expected[excluded])
        if not _DEMAND_CALLS.isdisjoint(expected):
            from evalkit.checks.contradictions import check_calls_outside_list

            never = [entry.function_name for entry in forbidden.forbidden if not entry.checks] if forbidden else []
            check_calls_outside_list(self.reader, expected, calls.leaves if calls else (), never)
        if forbidden is not None:
            self._check_forbidden(expected, calls, forbidden)

    def _check_forbidden(
        self, expected: Mapping[str, Any], calls: ExpectedCallList | None, forbidden: ForbiddenCalls
    ) -> None:
        from evalkit.checks.contradictions import is_always_forbidden

        for entry in forbidden.forbidden:
            for leaf in calls.leaves if calls else ():
                demanded, ruled_out = (_get_item(expected, call.path, self.path) for call in (leaf, entry))
                if leaf.function_name == entry.function_name and is_always_forbidden(demanded, ruled_out):
                    here, there = self.reader.format_place(leaf.path), self.reader.format_place(entry.path)
                    self.reader.add_problem(leaf.path, f"{here} expects {leaf.function_name}, which {there} forbids")


def _load_reader(where: str) -> _ReadCheck:
    module, _, function = where.partition(":")
    function_found: _ReadCheck = getattr(import_module(f"evalkit.checks.{module}"), function)
    return function_found


def _find_hint(key: str, names: list[str]) -> str:
    """What was probably meant by an unknown key of `expected_output`."""
    from difflib import get_close_matches

    suggestion = suggest(key, names)
    if key in CALL_KEYS:
        return f"; it belongs in a call of {_CALLS}"
    if find_text_argument(key) and not get_close_matches(key, names, 1, 0.85):
        return f"; it belongs in a call of {_CALLS}{suggestion.replace('; did', ', or did')}"
    return suggestion or f"; a key of your own needs a check registered with @evalkit.check({format_value(key)})"


def _get_item(expected: Any, path: KeyPath, root: KeyPath) -> Any:
    """What stands at `path` in the mapping that stands at `root`."""
    for step in path[len(root) :]:
        expected = expected[step]
    return expected


# `on_fault`: what must hold while a function fails. Expectations for every function, and under a name for that one.

ON_FAULT: KeyPath = ("on_fault",)
_NO_DEMANDS = Expectation(valid_arguments=False)


def compile_on_fault(
    on_fault: Any,
    function: str,
    *,
    declarations: Mapping[str, Declaration] | None = None,
    input: Any = None,
) -> Expectation:
    """What must hold while `function` fails: its own keys, and those for every function that it does not repeat.

    Without any it demands what every run must keep to: no exception, no call that nothing answers.
    """
    if not isinstance(on_fault, dict):
        return _NO_DEMANDS
    function_keys = _drop_nulls(on_fault.get(function)) if not _is_expectation(function) else {}
    shared = {key: value for key, value in _drop_nulls(on_fault).items() if _is_expectation(key)}
    shared = {key: value for key, value in shared.items() if key not in (on_fault.get(function) or {})}
    parts = [(shared, ON_FAULT), (function_keys, (*ON_FAULT, function))]
    expectation = _NO_DEMANDS
    for keys, path in parts:
        if keys:
            compiled, _ = compile_expectation(keys, path=path, declarations=declarations, input=input)
            expectation = _join(
                expectation, compiled, valid_arguments=keys.get("valid_arguments", expectation.valid_arguments)
            )
    return expectation


def find_on_fault_problems(
    on_fault: Any,
    functions: Iterable[str],
    *,
    declarations: Mapping[str, Declaration] | None = None,
    input: Any = None,
) -> list[PathProblem]:
    """All that is wrong with `on_fault`. `functions` are those that the case declares, mocks or expects."""
    if on_fault is None:
        return []
    if not isinstance(on_fault, dict):
        message = f"on_fault must be a mapping of expectations and of function names, got {describe_type(on_fault)}"
        return [PathProblem(ON_FAULT, message)]
    names = list(dict.fromkeys(functions))
    shared = {key: value for key, value in _drop_nulls(on_fault).items() if _is_expectation(key)}
    problems = _find_problems(shared, ON_FAULT, declarations, input)
    for key, value in on_fault.items():
        if _is_expectation(key):
            continue
        if key not in names:
            problems.append(_build_unknown_key(key, names))
        elif value is not None and not isinstance(value, dict):
            message = f"on_fault.{key} must be a mapping of what is expected, got {describe_type(value)}"
            problems.append(PathProblem((*ON_FAULT, key), message))
        else:
            problems += _find_problems(_drop_nulls(value), (*ON_FAULT, key), declarations, input)
    return problems


def _is_expectation(key: object) -> bool:
    return key in EXPECTED_KEYS or key in CHECKS


def _drop_nulls(keys: Any) -> dict[str, Any]:
    """Without the keys that null takes away."""
    return {key: value for key, value in keys.items() if value is not None} if isinstance(keys, dict) else {}


def _find_problems(
    keys: dict[str, Any], path: KeyPath, declarations: Mapping[str, Declaration] | None, input: Any
) -> list[PathProblem]:
    problems = compile_expectation(keys, path=path, declarations=declarations, input=input)[1] if keys else []
    if "judge" in keys:
        message = f"{format_path((*path, 'judge'))}: no model grades what happens under a fault; say it by other keys"
        problems.append(PathProblem((*path, "judge"), message, at_key=True))
    return problems


def _build_unknown_key(key: object, names: list[str]) -> PathProblem:
    hint = did_you_mean(str(key), [*names, *EXPECTED_KEYS, *CHECKS])
    message = f"unknown key '{key}' in on_fault, which is neither an expectation nor a function of this case{hint}"
    return PathProblem((*ON_FAULT, str(key)), message, at_key=True)


def _join(first: Expectation, second: Expectation, *, valid_arguments: bool) -> Expectation:
    """Both; of what only one can say, the second."""
    return replace(
        second,
        calls=second.calls or first.calls,
        forbidden=second.forbidden or first.forbidden,
        grounded=second.grounded or first.grounded,
        valid_arguments=valid_arguments,
        stop_reason=second.stop_reason if second.stop_reason.is_explicit else first.stop_reason,
        checks=(*first.checks, *second.checks),
    )


def allow_stop_reason(expectation: Expectation, stop_reason: str) -> Expectation:
    """`expectation`, to which a run that ended with `stop_reason` is as good as one that completed."""
    if expectation.stop_reason.is_explicit or stop_reason == COMPLETED:
        return expectation
    return replace(expectation, stop_reason=StopReason(stop_reason, (), is_explicit=False))
