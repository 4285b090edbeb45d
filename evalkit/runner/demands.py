"""What a run of a case is held against, and the one judgement of what happened: of a run, a changed one, a mutant.

Expectations are compiled when the case is loaded, with the functions that the case declares. An instruction file or an
agent in code may declare more: its aliases and defaults are known from the run alone. A call by an alias is recorded
under the function's own name, so what a case expects is then compiled anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from evalkit.checks.compile import compile_expectation
from evalkit.checks.expectation import (
    Expectation,
    Judgement,
    add_results,
    format_summary,
    get_expectation,
    judge_conversation,
)
from evalkit.checks.expected_keys import merge_turn_keys
from evalkit.checks.reader import get_declared_defaults
from evalkit.checks.reasons import build_reason, build_unmeasured
from evalkit.errors import KeyPath, parse_path
from evalkit.hooks import JudgedRun
from evalkit.jsonvalue import JsonObject
from evalkit.records.case import Case, Declaration
from evalkit.records.transcript import Transcript
from evalkit.records.verdict import ERROR, PASSED, Reason


class Demands(Struct, frozen=True):
    """The expectations of a case and of its user turns, for a run in which `declared` were declared."""

    case: Case
    expectation: Expectation | None
    turns: Sequence[Expectation | None]
    declared: Sequence[Declaration]


def judge_transcript(demands: Demands, transcript: Transcript) -> Judgement:
    """Judge what happened by the expectations and by the features that the case has something of."""
    case = demands.case
    judgement = judge_conversation(transcript, demands.expectation, demands.turns, input=case.input)
    return _judge_features(demands, transcript, judgement) if case.features else judgement


def _judge_features(demands: Demands, transcript: Transcript, judgement: Judgement) -> Judgement:
    """Add what features say of the run. One that raises leaves it unmeasured."""
    case = demands.case
    aliases = collect_aliases((*case.functions, *demands.declared))
    run = JudgedRun(case=case, transcript=transcript, aliases=aliases)
    data, results = {}, []
    is_unmeasured = transcript.fault is not None and not transcript.fault.measured
    for name, part in case.features.items():
        if is_unmeasured and not part.judges_unmeasured:
            continue
        try:
            judged = part.judge(run)
        except Exception as error:
            message = f"can't be judged: feature '{name}' raised {type(error).__name__}: {error}"
            results.append(build_unmeasured(name, message, "", "run"))
            continue
        if judged is not None:
            results += judged.results
            if judged.data is not None:
                data[name] = judged.data
    judgement = add_results(replace(judgement, features=data), results, transcript.fault)
    return _confirm(run, judgement) if judgement.status == PASSED else judgement


def _confirm(run: JudgedRun, judgement: Judgement) -> Judgement:
    """Return the judgement of a run for which all holds: an error where it can't count as measured nevertheless."""
    for name, part in run.case.features.items():
        try:
            reason = part.confirm(run)
        except Exception as error:
            message = f"can't be judged: feature '{name}' raised {type(error).__name__}: {error}"
            reason = build_reason("not_measured", message, "")
        if reason is not None:
            return replace(judgement, status=ERROR, reasons=(reason,), summary=format_summary((reason,)))
    return judgement


def collect_aliases(functions: Iterable[Declaration]) -> dict[str, str]:
    """Return the names that functions with an alias are recorded under, by alias."""
    return {alias: function.name for function in functions for alias in function.aliases}


def locate_reason(case: Case, reason: Reason) -> Reason:
    """Return `reason` with the line of its place, unless it has one (a feature's) or stands in no file."""
    if reason.location or not reason.place:
        return reason
    return replace(reason, location=str(case.locate(parse_path(reason.place))))


def compile_demands(case: Case, expectation: Expectation | None, declared: Iterable[Declaration]) -> Demands:
    """Return `expectation` and those of the user turns, compiled anew if a run declared aliases or defaults besides."""
    turns, declared = tuple(get_expectation(turn) for turn in case.turns), tuple(declared)
    own_names = {name for function in case.functions for name in (function.name, *function.aliases)}
    aliases = collect_aliases(declared).keys() - own_names
    added = [function for function in declared if function.name not in own_names]
    declared_defaults = {function.name: values for function in added if (values := get_declared_defaults(function))}
    if not aliases and not declared_defaults:
        return Demands(case, expectation, turns, declared)
    known = {function.name: function for function in case.functions}
    for function in declared:
        if function.aliases:
            there = known.get(function.name, Declaration(name=function.name))
            known[function.name] = replace(there, aliases=function.aliases)
    own_defaults = case.merged.get("defaults") or {}
    defaults = {
        name: {**declared_defaults.get(name, {}), **own_defaults.get(name, {})}
        for name in (*declared_defaults, *own_defaults)
    }

    def compile_anew(compiled: Expectation | None, path: KeyPath, expected: object) -> Expectation | None:
        text = str(expected) if isinstance(expected, Mapping) else ""
        if compiled is None or not any(name in text for name in (*aliases, *declared_defaults)):
            return compiled  # as most: compiling takes a good part of a run's time
        anew, problems = compile_expectation(
            expected, path=path, declarations=known, input=case.input, defaults=defaults, is_open=True
        )
        return compiled if problems else anew

    user_turns = case.input.get("turns") or ()
    return Demands(
        case,
        compile_anew(expectation, ("expected_output",), case.expected_output),
        tuple(
            compile_anew(turn, ("input", "turns", number, "expected_output"), _find_keys(case, user_turns[number]))
            for number, turn in enumerate(turns)
        ),
        declared,
    )


def _find_keys(case: Case, user_turn: object) -> JsonObject | None:
    """Return what a user turn expects, with what it inherits; None if it expects nothing."""
    expected = user_turn.get("expected_output") if isinstance(user_turn, Mapping) else None
    return merge_turn_keys(expected, case.expected_output) if isinstance(expected, Mapping) else None
