"""The score of a case: the mutants that it catches, and the keys with which it would catch the others."""

from __future__ import annotations

import copy
from collections.abc import Container, Mapping
from typing import Any

from msgspec import Struct

from evalkit.casecheck.mutants import Keys, Mutant, Observation, generate_mutants
from evalkit.checks.compile import compile_expectation
from evalkit.checks.conversation import judge_conversation
from evalkit.checks.expectation import Judgement
from evalkit.errors import KeyPath, format_path
from evalkit.model.case import Declaration
from evalkit.model.transcript import Transcript
from evalkit.model.verdict import FAILED, PASSED
from evalkit.runner.judge import compile_with_aliases, parse_path


class Survivor(Struct, frozen=True):
    """A mutant that its case accepts. `keys` written at `place` would have caught it; None: no one key would."""

    kind: str
    description: str
    place: str = ""
    keys: Keys | None = None


class CaseScore(Struct, frozen=True):
    """The number of a case's mutants, and of those it catches. `skipped`: why there are none. `graded`: a model
    graded the run: mutants are judged by the same grades, so that none is caught by a criterion of `judge`."""

    case_id: str
    caught: int = 0
    total: int = 0
    survivors: tuple[Survivor, ...] = ()
    skipped: str = ""
    graded: bool = False


def compute_score(observed: Observation, *, leave_out: Container[str] = ()) -> CaseScore:
    """Judge every mutant of a passing run, but for the kinds to `leave_out`."""
    verdict = observed.verdict
    if verdict.status != PASSED:
        return CaseScore(verdict.case_id, skipped=f"{verdict.status.replace('_', ' ')}: {verdict.summary}")
    caught = total = 0
    survivors = []
    for mutant in generate_mutants(observed):
        if mutant.kind in leave_out:
            continue
        total += 1
        if _judge(observed, mutant.transcript).status != PASSED:
            caught += 1
        else:
            survivors.append(_explain(observed, mutant))
    graded = bool(verdict.transcript.gradings)
    return CaseScore(verdict.case_id, caught, total, tuple(survivors), graded=graded)


def _judge(observed: Observation, transcript: Transcript, instead: tuple[KeyPath, Any] | None = None) -> Judgement:
    """Judge `transcript` by the case; `instead` is an expectation to use at its path."""
    case = observed.case
    path, expectation = instead or ((), None)
    usual, turns = compile_with_aliases(case, case.expectation, observed.declarations.values())
    case_expectation = expectation if path == ("expected_output",) else usual
    if len(path) == 4:  # input.turns[n].expected_output
        turns[int(path[2])] = expectation
    return judge_conversation(transcript, case_expectation, turns, input=case.input)


def _explain(observed: Observation, mutant: Mutant) -> Survivor:
    for place, keys in _list_candidates(observed, mutant):
        if _can_catch(observed, mutant.transcript, place, keys):
            return Survivor(mutant.kind, mutant.description, format_path(place), keys)
    return Survivor(mutant.kind, mutant.description)


def _list_candidates(observed: Observation, mutant: Mutant) -> list[tuple[KeyPath, Keys]]:
    places = [
        parse_path(line.expectation)
        for line in observed.verdict.calls
        if line.call is not None and line.call.index == mutant.call and line.expectation
    ]
    candidates: list[tuple[KeyPath, Keys]] = [(place, keys) for place in places for keys in mutant.for_call]
    candidates += [(("expected_output",), keys) for keys in mutant.for_run]
    if not places and mutant.call is not None:
        # Calls are not judged yet, or this one is an extra: the whole list with the demand in it.
        calls = observed.verdict.transcript.calls
        for keys in mutant.for_call:
            listed: list[Any] = [call.name for call in calls]
            listed[mutant.call] = {"function_name": calls[mutant.call].name, **keys}
            candidates.append((("expected_output",), {"expected_function_calls": listed}))
    return candidates


def _can_catch(observed: Observation, transcript: Transcript, place: KeyPath, keys: Keys) -> bool:
    """Tell whether the case with `keys` at `place` still accepts the observed run, and refuses `transcript`."""
    root: KeyPath = place[: place.index("expected_output") + 1]
    data = copy.deepcopy(dict(observed.case.merged))
    data.setdefault("expected_output", {})
    holder: Any = data
    for step in place[:-1]:
        holder = holder[step]
    node = holder[place[-1]]
    if isinstance(node, str):
        node = {"function_name": node}
    if not isinstance(node, dict):
        return False
    holder[place[-1]] = add_keys(node, keys)
    expected: Any = data
    for step in root:
        expected = expected[step]
    declarations: dict[str, Declaration] = {}
    if observed.declarations:  # where functions are declared, mocked ones are known, too
        mocked = {name: Declaration(name=name) for name in observed.verdict.transcript.functions}
        declarations = {**mocked, **observed.declarations}
    compiled, problems = compile_expectation(expected, path=root, declarations=declarations, input=observed.case.input)
    if problems:
        return False
    instead = (root, compiled)
    unharmed = _judge(observed, observed.verdict.transcript, instead).status == PASSED
    return unharmed and _judge(observed, transcript, instead).status == FAILED


def add_keys(node: Mapping[str, Any], keys: Keys) -> dict[str, Any]:
    """Add `keys` to `node`: mappings merge, phrases are appended, other values replace."""
    result = dict(node)
    for key, value in keys.items():
        there = result.get(key)
        is_operator = isinstance(value, dict) and any(str(name).startswith("$") for name in value)
        if isinstance(there, dict) and isinstance(value, dict) and not is_operator:
            result[key] = add_keys(there, value)
        elif isinstance(value, list) and there is not None and key != "expected_function_calls":
            result[key] = [*(there if isinstance(there, list) else [there]), *value]
        else:
            result[key] = value
    return result
