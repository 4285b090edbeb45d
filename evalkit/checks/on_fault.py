"""`on_fault`: what must hold while a function fails. Expectations for every function, and under a name for that one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from evalkit.checks.compiling import compile_expectation
from evalkit.checks.expectation import Expectation
from evalkit.checks.keys import EXPECTED_KEYS
from evalkit.checks.reading import KeyPath
from evalkit.checks.stop_reason import COMPLETED, StopReason
from evalkit.errors import PathProblem, did_you_mean, format_path
from evalkit.model.case import Declaration
from evalkit.model.registry import CHECKS
from evalkit.operators.shown import describe_type

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
