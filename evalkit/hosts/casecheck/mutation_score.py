"""The score of a case by the mutants of its run that it catches, and the keys that would catch the others."""

from __future__ import annotations

import copy
from collections.abc import Container
from contextlib import suppress
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from evalkit.checks.compile import compile_expectation
from evalkit.checks.expectation import Expectation, Judgement, get_expectation
from evalkit.errors import FunctionError, KeyPath, MockError, format_path, parse_path
from evalkit.functions.call_log import CallContext
from evalkit.functions.dispatcher import FakeDispatcher
from evalkit.functions.mocks.answers import get_mocks
from evalkit.hooks import iter_known
from evalkit.hosts.casecheck.mutants import Keys, Mutant, Observation, generate_mutants
from evalkit.jsonvalue import JsonDict, JsonObject, copy_json
from evalkit.operators.late import leave_open
from evalkit.records.case import Declaration
from evalkit.records.transcript import Transcript
from evalkit.records.verdict import FAILED, PASSED
from evalkit.runner.judge import compile_demands, judge_transcript
from evalkit.runner.run_state import copy_state


class Survivor(Struct, frozen=True):
    """A mutant that its case accepts. `keys` written at `place` would have caught it; None: no one key would."""

    kind: str
    description: str
    place: str = ""
    keys: Keys | None = None


class CaseScore(Struct, frozen=True):
    """The number of a case's mutants, and of those it catches. `skipped`: why there are none. `notes`: what
    features say of mutants, which are judged by the data that they have of the run."""

    case_id: str
    caught: int = 0
    total: int = 0
    survivors: tuple[Survivor, ...] = ()
    skipped: str = ""
    notes: tuple[str, ...] = ()


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
            continue
        survivor = Survivor(mutant.kind, mutant.description)
        for place, keys in _list_candidates(observed, mutant):
            if _can_catch(observed, mutant.transcript, place, keys):
                survivor = replace(survivor, place=format_path(place), keys=keys)
                break
        survivors.append(survivor)
    notes = tuple(feature.about_mutants for _, feature in iter_known(verdict.transcript.features))
    return CaseScore(verdict.case_id, caught, total, tuple(survivors), notes=tuple(filter(None, notes)))


def _judge(
    observed: Observation, transcript: Transcript, instead: tuple[KeyPath, Expectation] | None = None
) -> Judgement:
    """Judge `transcript` by the case; `instead` is an expectation to use at its path."""
    case = observed.case
    transcript = _replay_state(observed, transcript)
    demands = compile_demands(case, get_expectation(case), observed.declarations.values())
    if instead is not None:
        path, expectation = instead
        if len(path) == 4:  # input.turns[n].expected_output
            turn = int(path[2])
            demands = replace(demands, turns=(*demands.turns[:turn], expectation, *demands.turns[turn + 1 :]))
        else:
            demands = replace(demands, expectation=expectation)
    with leave_open("no model looks at mutants"):  # no mutant is caught for want of an answer
        return judge_transcript(demands, transcript)


def _replay_state(observed: Observation, transcript: Transcript) -> Transcript:
    """Return `transcript` with the state that its calls lead to, where mocks alone make the state."""
    case, mocks = observed.case, get_mocks(observed.case)
    is_mocked = "state" in case.input and "state_probe" not in case.input
    if not is_mocked or transcript.calls == observed.verdict.transcript.calls:
        return transcript
    # What features answered stands in the calls: none is asked again.
    declarations = [replace(declaration, features={}) for declaration in observed.declarations.values()]
    dispatcher = FakeDispatcher(mocks, declarations, input=case.input, case_id=case.id, state=copy_state(case))
    for call in transcript.calls:
        if call.is_denied:
            continue
        with suppress(FunctionError, MockError):
            dispatcher.call(call.name, call.arguments, CallContext(turn=call.turn))
    return replace(transcript, state=copy_json(dispatcher.state))


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
            listed: list[str | JsonDict] = [call.name for call in calls]
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
    compiled, problems = compile_expectation(
        expected,
        path=root,
        declarations=declarations,
        input=observed.case.input,
        defaults=observed.case.merged.get("defaults"),
    )
    if problems:
        return False
    instead = (root, compiled)
    accepts_run = _judge(observed, observed.verdict.transcript, instead).status == PASSED
    return accepts_run and _judge(observed, transcript, instead).status == FAILED


def add_keys(node: JsonObject, keys: Keys) -> JsonDict:
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
