"""Mutants of a run: transcripts with one thing changed, each with the keys that would notice the change, and the score
of a case by the mutants that it catches.

Calls of one model turn have no order, so that they are not swapped; two calls that are alike are not either.
"""

from __future__ import annotations

import asyncio
import copy
import re
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, NoReturn

from msgspec import Struct
from msgspec.structs import replace

from evalkit.agents.model_choice import aclose_shared
from evalkit.casecheck.expected_calls import ExampleNotFoundError, NoExampleError, OmittedArgumentError, make_example
from evalkit.checks.compile import compile_expectation
from evalkit.checks.expectation import Expectation, Judgement, get_expectation, judge_conversation
from evalkit.checks.policies import apply_policies
from evalkit.errors import FunctionError, KeyPath, MockError, format_path
from evalkit.functions.call_log import CallContext
from evalkit.functions.declarations import find_argument_violations
from evalkit.functions.dispatcher import FakeDispatcher
from evalkit.functions.mocks.answers import get_mocks
from evalkit.jsonvalue import JsonDict, JsonObject, JsonValue, copy_json, walk_leaves
from evalkit.model.case import Case, Declaration
from evalkit.model.settings import Settings
from evalkit.model.template import Reference, TemplateError
from evalkit.model.transcript import MOCK, FunctionCall, Grading, Transcript
from evalkit.model.verdict import FAILED, PASSED, Verdict
from evalkit.operators.base import JUDGE
from evalkit.runner.judge import collect_aliases, compile_with_aliases, parse_path
from evalkit.runner.run_case import Watchdog, arun_case
from evalkit.runner.run_state import RunState, copy_state

KINDS: dict[str, str] = {
    "drop_call": "a call is not made",
    "repeat_call": "a call is made twice",
    "swap_calls": "two calls that follow each other change places",
    "extra_call": "a function that the case knows is called as well",
    "unlisted_call": "a function that nobody declared is called as well",
    "forbidden_call": "a function that the case forbids is called, as it forbids it",
    "change_argument": "an argument has another value",
    "drop_argument": "an argument is not sent",
    "add_argument": "an argument more is sent",
    "lose_fact": "a number, date or name of the input or of a result is told wrongly in a text",
    "fail_call": "a call fails",
    "change_result": "a function that no mock answered returns another value",
    "change_response": "the final response says something else",
    "stop_reason": "the run stops for another reason",
}
UNLISTED = "delete_everything"
FAILED_RESULT = {"error": {"type": "mutant", "message": "it failed"}}
_MAX_FACTS = 8

SOMETHING_ELSE = "something else"
_LAST_DIGIT = re.compile(r"[0-9](?=[^0-9]*\Z)")
_FACT = re.compile(r"(?=.*[0-9]).{4,60}", re.DOTALL)
_LONG = 60
_MAX_LEAVES = 12

Keys = JsonObject


class Observation(Struct, frozen=True):
    """A case's verdict (of a repeated case, its first passing run), and the declared functions by name."""

    case: Case
    verdict: Verdict
    declarations: Mapping[str, Declaration]


class _Observer(Watchdog):
    def __init__(self) -> None:
        super().__init__()
        self.attempts: list[RunState] = []

    def start_run(self, run: RunState) -> None:
        super().start_run(run)
        self.attempts.append(run)


def observe(case: Case, agent: object = None, settings: Settings | None = None) -> Observation:
    """Run `case` like `run_case`, and keep the functions that were declared, which the verdict does not have."""
    observer = _Observer()

    async def run() -> Verdict:
        try:
            return await arun_case(case, agent, settings, watch=observer)
        finally:
            await aclose_shared()

    verdict = asyncio.run(run())
    passing = next((number for number, run_verdict in enumerate(observer.runs) if run_verdict.status == PASSED), 0)
    if len(observer.runs) > 1 and verdict.status == PASSED:
        verdict = observer.runs[passing]
    declared = observer.attempts[passing].dispatcher.declarations if observer.attempts else case.functions
    return Observation(case, verdict, {declaration.name: declaration for declaration in declared})


class Mutant(Struct, frozen=True, kw_only=True):
    """A changed transcript. `for_call` and `for_run` are keys that might catch it, the best first: at the expected
    call that met call number `call`, and in `expected_output`."""

    kind: str
    description: str
    transcript: Transcript
    call: int | None = None
    for_call: tuple[Keys, ...] = ()
    for_run: tuple[Keys, ...] = ()


def generate_mutants(observed: Observation) -> Iterator[Mutant]:
    """Generate every mutant of a passing run."""
    transcript = observed.verdict.transcript
    yield from _generate_call_changes(transcript)
    yield from _generate_added_calls(observed)
    for index, call in enumerate(transcript.calls):
        if isinstance(call.arguments, dict):
            yield from _generate_argument_changes(observed, index)
            yield from _generate_lost_facts(observed, index)
        yield from _generate_result_changes(transcript, index)
    transcript = observed.verdict.transcript
    response = transcript.response
    if response.strip():
        says: tuple[Keys, ...] = ({"response_contains": [pick_phrase(response)]},)
        yield Mutant(
            kind="change_response", description="the response says something else",
            transcript=_replace_response(transcript, SOMETHING_ELSE), for_run=says,
        )  # fmt: skip
        for fact in _find_facts(response, observed, len(transcript.calls)):
            yield Mutant(
                kind="lose_fact", description=f"the response says something else for {fact}",
                transcript=_replace_response(transcript, replace_fact(response, fact)),
                for_run=({"response_contains": [fact]},),
            )  # fmt: skip
    stop_reason = "max_iterations" if transcript.stop_reason != "max_iterations" else "completed"
    yield Mutant(
        kind="stop_reason", description=f"the run stops for the reason '{stop_reason}'",
        transcript=replace(transcript, stop_reason=stop_reason), for_run=({"stop_reason": transcript.stop_reason},),
    )  # fmt: skip


def replace_calls(transcript: Transcript, calls: Sequence[FunctionCall]) -> Transcript:
    """Replace the calls of `transcript`, and number them anew."""
    return replace(transcript, calls=tuple(replace(call, index=index) for index, call in enumerate(calls)))


def _describe_call(transcript: Transcript, index: int) -> str:
    call = transcript.calls[index]
    alike = [number for number, candidate in enumerate(transcript.calls) if candidate.name == call.name]
    return call.name if len(alike) == 1 else f"{call.name} (call {index + 1})"


def _generate_call_changes(transcript: Transcript) -> Iterator[Mutant]:
    calls = transcript.calls
    limit = {"max_function_calls": len(calls)}
    names = {"expected_function_calls": [call.name for call in calls]}
    for index, call in enumerate(calls):
        name = _describe_call(transcript, index)
        fewer = replace_calls(transcript, calls[:index] + calls[index + 1 :])
        at_call = ({"optional": False}, {"times": sum(second.name == call.name for second in calls)})
        yield Mutant(
            kind="drop_call", description=f"{name} is not called", transcript=fewer, call=index, for_call=at_call,
            for_run=(names,),
        )  # fmt: skip
        twice = replace_calls(transcript, calls[: index + 1] + calls[index:])
        forbid: tuple[Keys, ...] = ({"extra_calls": "forbid"}, names, limit)
        yield Mutant(
            kind="repeat_call", description=f"{name} is called twice", transcript=twice, call=index,
            for_call=({"times": 1},), for_run=forbid,
        )  # fmt: skip
    for index in range(len(calls) - 1):
        first, second = calls[index], calls[index + 1]
        together = first.turn is not None and first.turn == second.turn
        alike = (first.name, first.arguments, first.outcome) == (second.name, second.arguments, second.outcome)
        if together or alike or first.user_turn != second.user_turn:
            continue
        turned = (replace(second, turn=first.turn), replace(first, turn=second.turn))
        description = f"{_describe_call(transcript, index + 1)} is called before {_describe_call(transcript, index)}"
        swapped = replace_calls(transcript, calls[:index] + turned + calls[index + 2 :])
        yield Mutant(
            kind="swap_calls", description=description, transcript=swapped, for_run=({"call_order": "strict"}, names)
        )


def _generate_added_calls(observed: Observation) -> Iterator[Mutant]:
    """Generate a call more: of each function not called yet, and as `forbidden_function_calls` describes it."""

    def refuse(reference: Reference) -> NoReturn:
        raise TemplateError(f"{reference.text} is known in the run alone")

    transcript = observed.verdict.transcript
    calls = transcript.calls
    like = calls[-1] if calls else FunctionCall(name="", channel="native")
    base = FunctionCall(
        name="", result={"status": "done"}, turn=like.turn, user_turn=like.user_turn, channel=like.channel
    )
    called_names = {call.name for call in calls}
    names = {"expected_function_calls": [call.name for call in calls]}
    for name in [*(name for name in transcript.functions if name not in called_names), UNLISTED]:
        kind = "unlisted_call" if name == UNLISTED else "extra_call"
        yield Mutant(
            kind=kind, description=f"{name} is called as well",
            transcript=replace_calls(transcript, (*calls, replace(base, name=name))),
            for_run=(
                {"forbidden_function_calls": [name]} if kind == "extra_call" else {"extra_calls": "forbid"},
                names,
                {"max_function_calls": len(calls)},
            ),
        )  # fmt: skip

    listed = observed.case.expected_output.get("forbidden_function_calls") or []
    for item in listed if isinstance(listed, list) else [listed]:
        entry = {"function_name": item} if isinstance(item, str) else item
        try:
            arguments = make_example(entry.get("arguments_contain") or {}, refuse)
        except (ExampleNotFoundError, NoExampleError, OmittedArgumentError, TemplateError):
            continue
        call = replace(base, name=str(entry["function_name"]), arguments=arguments)
        yield Mutant(
            kind="forbidden_call", description=f"{call.name} is called, which is forbidden",
            transcript=replace_calls(transcript, (*calls, call)), for_run=({"forbidden_function_calls": [call.name]},),
        )  # fmt: skip


def _replace_arguments(observed: Observation, index: int, arguments: JsonDict) -> Transcript:
    """Replace arguments as the dispatcher would have recorded them: validated against the declared schema."""
    transcript = observed.verdict.transcript
    calls = list(transcript.calls)
    declaration = observed.declarations.get(calls[index].name)
    violations = () if declaration is None else find_argument_violations(declaration, arguments)
    calls[index] = replace(calls[index], arguments=arguments, violations=violations)
    return replace_calls(transcript, calls)


def _generate_argument_changes(observed: Observation, index: int) -> Iterator[Mutant]:
    call = observed.verdict.transcript.calls[index]
    description = _describe_call(observed.verdict.transcript, index)
    declaration = observed.declarations.get(call.name)
    properties = (declaration.parameters or {}).get("properties") if declaration else None
    schemas: JsonObject = properties if isinstance(properties, Mapping) else {}
    names = observed.case.expected_output.get("ignored_arguments") or ()
    ignored = frozenset([names] if isinstance(names, str) else names)
    judged = {name: value for name, value in call.arguments.items() if name not in ignored}
    for path, value in list_first_leaves(judged) if judged else ():
        schema = schemas.get(str(path[0])) if len(path) == 1 else None
        changed_value = make_other_value(value, schema if isinstance(schema, Mapping) else None)
        yield Mutant(
            kind="change_argument",
            description=f"{description} gets another {'.'.join(map(str, path))}",
            transcript=_replace_arguments(observed, index, replace_leaf(call.arguments, path, changed_value)),
            call=index,
            for_call=_build_demands(path, value),
        )
    for name, value in judged.items():
        less = {key: item for key, item in call.arguments.items() if key != name}
        demands = (*_build_demands((name,), value), {"arguments_contain": {name: {"$any": True}}})
        yield Mutant(
            kind="drop_argument", description=f"{description} is called without {name}",
            transcript=_replace_arguments(observed, index, less), call=index, for_call=demands,
        )  # fmt: skip
    unsent = [name for name in schemas if name not in call.arguments and name not in ignored]
    for name in unsent or ["unasked_for"]:
        value = make_other_value(None, schemas.get(name)) if name in schemas else SOMETHING_ELSE
        extra_arguments = {**call.arguments, name: value}
        yield Mutant(
            kind="add_argument", description=f"{description} gets {name} as well",
            transcript=_replace_arguments(observed, index, extra_arguments), call=index,
            for_call=({"arguments_absent": [name]},) if unsent else ({"arguments": call.arguments},),
        )  # fmt: skip


def _build_demands(path: KeyPath, value: object) -> tuple[Keys, ...]:
    if isinstance(value, str) and is_long(value):
        name = str(path[0])
        return ({f"{name}_contains": [pick_phrase(value)]},) if len(path) == 1 else ()
    exact = {"arguments_contain": build_nested(path, {"$eq": value})}
    return ({"arguments_contain": build_nested(path, value)}, exact)


def pick_phrase(text: str) -> str:
    """Pick some words of a text that say more than its greeting."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    longest = max(lines, key=len, default=text)
    return " ".join(longest.split()[:6])


def _generate_lost_facts(observed: Observation, index: int) -> Iterator[Mutant]:
    """Generate mutants with a wrong fact in the prose of an argument."""
    transcript = observed.verdict.transcript
    call = transcript.calls[index]
    for name, text in call.arguments.items():
        if not isinstance(text, str) or not is_long(text):
            continue
        for fact in _find_facts(text, observed, index):
            changed = {**call.arguments, name: replace_fact(text, fact)}
            yield Mutant(
                kind="lose_fact",
                description=f"the {name} of {_describe_call(transcript, index)} says something else for {fact}",
                transcript=_replace_arguments(observed, index, changed), call=index,
                for_call=({f"{name}_contains": [fact]},),
            )  # fmt: skip


def _find_facts(text: str, observed: Observation, before: int) -> list[str]:
    """Find facts of `text` that come from results and arguments of the calls before it."""
    calls = observed.verdict.transcript.calls[:before]
    facts = [fact for call in calls for fact in iter_facts(call.result)]
    facts += [fact for call in calls for fact in iter_facts(call.arguments)]
    folded = text.casefold()
    return [fact for fact in dict.fromkeys(facts) if fact.casefold() in folded][:_MAX_FACTS]


def _generate_result_changes(transcript: Transcript, index: int) -> Iterator[Mutant]:
    calls = list(transcript.calls)
    call = calls[index]
    if call.outcome == "ok":
        calls[index] = replace(call, outcome="error", result=FAILED_RESULT)
        names = {"expected_function_calls": [candidate.name for candidate in transcript.calls]}
        yield Mutant(
            kind="fail_call", description=f"{_describe_call(transcript, index)} fails",
            transcript=replace_calls(transcript, calls), call=index, for_call=({"outcome": "ok"},), for_run=(names,),
        )  # fmt: skip
    if call.result is None or call.answered_by == MOCK:  # what a mock returns is the case's own doing
        return
    path, value = list_first_leaves(call.result)[0]
    calls[index] = replace(call, result=replace_leaf(call.result, path, make_other_value(value)))
    yield Mutant(
        kind="change_result",
        description=f"{_describe_call(transcript, index)} returns another {'.'.join(map(str, path)) or 'value'}",
        transcript=replace_calls(transcript, calls),
        call=index,
        for_call=({"result_contains": build_nested(path, value)},),
    )


def _replace_response(transcript: Transcript, response: str) -> Transcript:
    responses = (*transcript.responses[:-1], response) if transcript.responses else ()
    return replace(transcript, response=response, responses=responses)


def make_other_value(value: JsonValue, schema: JsonObject | None = None) -> Any:
    """Make another value of the same type; one that the schema's `enum` allows, if it has another."""
    for allowed in (schema or {}).get("enum") or ():
        if allowed != value:
            return allowed
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return value + 1
    if isinstance(value, str) and not is_long(value):
        if "@" in value:
            return "someone.else@example.org"
        changed = _LAST_DIGIT.sub(lambda match: str((int(match[0]) + 1) % 10), value)
        return changed if changed != value else SOMETHING_ELSE
    if isinstance(value, list):
        return value[:-1] if value else [SOMETHING_ELSE]
    return SOMETHING_ELSE


def is_long(text: str) -> bool:
    """Tell whether `text` is prose, of which no case expects every word."""
    return len(text) > _LONG or "\n" in text


def iter_leaves(value: JsonValue, path: KeyPath = ()) -> Iterator[tuple[KeyPath, JsonValue]]:
    """Yield the values that a mapping holds, at any depth; a list counts as one value."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from iter_leaves(item, (*path, key))
    else:
        yield path, value


def list_first_leaves(value: JsonValue) -> list[tuple[KeyPath, JsonValue]]:
    """List the first leaves: further ones of a large value test the same."""
    return list(islice(iter_leaves(value), _MAX_LEAVES))


def replace_leaf(value: Any, path: KeyPath, leaf: JsonValue) -> Any:
    """Replace the leaf of `value` at `path`."""
    if not path:
        return leaf
    return {**value, path[0]: replace_leaf(value[path[0]], path[1:], leaf)}


def build_nested(path: KeyPath, leaf: object) -> object:
    """Build mappings around `leaf` for the keys of `path`: ``{"a": {"b": leaf}}``."""
    for step in reversed(path):
        leaf = {step: leaf}
    return leaf


def iter_facts(value: object) -> Iterator[str]:
    """Yield the texts in a value that look like facts: short and with a digit, such as ticket numbers and dates."""
    for _, leaf in walk_leaves(value):
        if isinstance(leaf, str) and "\n" not in leaf and _FACT.fullmatch(leaf):
            yield leaf


def replace_fact(text: str, fact: str) -> str:
    """Replace `fact` by something else wherever it stands in `text`."""
    return re.sub(re.escape(fact), SOMETHING_ELSE, text, flags=re.IGNORECASE)


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
            continue
        survivor = Survivor(mutant.kind, mutant.description)
        for place, keys in _list_candidates(observed, mutant):
            if _can_catch(observed, mutant.transcript, place, keys):
                survivor = replace(survivor, place=format_path(place), keys=keys)
                break
        survivors.append(survivor)
    graded = bool(verdict.transcript.gradings)
    return CaseScore(verdict.case_id, caught, total, tuple(survivors), graded=graded)


def _judge(
    observed: Observation, transcript: Transcript, instead: tuple[KeyPath, Expectation] | None = None
) -> Judgement:
    """Judge `transcript` by the case; `instead` is an expectation to use at its path."""
    case = observed.case
    transcript = _replay_state(observed, transcript)
    # What no model has graded is not: no mutant is caught for want of a grade.
    ungraded = Grading(place=JUDGE, skipped="not graded: no model looks at mutants")
    transcript = replace(transcript, gradings=(*transcript.gradings, ungraded))
    path, expectation = instead or ((), None)
    usual, turns = compile_with_aliases(case, get_expectation(case), observed.declarations.values())
    case_expectation = expectation if path == ("expected_output",) else usual
    if len(path) == 4:  # input.turns[n].expected_output
        turns[int(path[2])] = expectation
    judgement = judge_conversation(transcript, case_expectation, turns, input=case.input)
    return apply_policies(judgement, case, transcript, collect_aliases(observed.declarations.values()))


def _replay_state(observed: Observation, transcript: Transcript) -> Transcript:
    """Return `transcript` with the state that its calls lead to, where mocks alone make the state."""
    case, mocks = observed.case, get_mocks(observed.case)
    is_mocked = "state" in case.input and mocks.state_probe is None
    if not is_mocked or transcript.calls == observed.verdict.transcript.calls:
        return transcript
    dispatcher = FakeDispatcher(
        mocks, observed.declarations.values(), input=case.input, case_id=case.id, state=copy_state(case)
    )
    for call in transcript.calls:
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
