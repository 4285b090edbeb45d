"""Mutants of a run: transcripts with one thing changed, each with the keys that would notice the change.

Calls of one model turn have no order, so that they are not swapped; two calls that are alike are not either.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NoReturn

from msgspec import Struct
from msgspec.structs import replace

from evalkit.agents.model_choice import aclose_shared
from evalkit.checks.call_keys import list_call_keys
from evalkit.checks.expected_keys import list_expected_keys
from evalkit.errors import KeyPath
from evalkit.functions.declarations import find_argument_violations
from evalkit.hooks import iter_known, load_all, name_errors
from evalkit.hosts.casecheck.expected_calls import (
    ExampleNotFoundError,
    NoExampleError,
    OmittedArgumentError,
    make_example,
)
from evalkit.jsonvalue import JsonDict, JsonObject, JsonValue, walk_leaves
from evalkit.records.case import Case, Declaration
from evalkit.records.settings import Settings
from evalkit.records.template import Reference, TemplateError
from evalkit.records.transcript import MOCK, FunctionCall, Transcript
from evalkit.records.verdict import PASSED, Verdict
from evalkit.runner.run_case import Watchdog, arun_case
from evalkit.runner.run_state import RunState

_OF_CALLS = {
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
}
_OF_RUNS = {
    "change_result": "a function that no mock answered returns another value",
    "change_response": "the final response says something else",
    "stop_reason": "the run stops for another reason",
}
UNLISTED = "delete_everything"
_MAX_FACTS = 8

SOMETHING_ELSE = "something else"
_LAST_DIGIT = re.compile(r"[0-9](?=[^0-9]*\Z)")
_FACT = re.compile(r"(?=.*[0-9]).{4,60}", re.DOTALL)
_LONG = 60
_MAX_LEAVES = 12

Keys = JsonObject


def list_kinds() -> Mapping[str, str]:
    """Return the kinds of mutants by name, each with what happens in them."""
    of_keys = {kind: words for key in list_call_keys().values() for kind, words in key.mistakes.items()}
    of_features: dict[str, str] = {}
    for feature in load_all():
        with name_errors(feature.name):
            of_features |= feature.list_mutants()
    of_run_keys = {kind: words for key in list_expected_keys().values() for kind, words in key.mistakes.items()}
    return {**_OF_CALLS, **of_keys, **of_features, **of_run_keys, **_OF_RUNS}


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
        yield from _generate_key_mistakes(transcript, index)
        yield from _generate_result_changes(transcript, index)
        for name, feature in iter_known(call.features):
            with name_errors(name):
                yield from feature.mutate(transcript, index)
    for key in list_expected_keys().values():
        for change in key.mutate(transcript):
            demand = {key.name: change.value}
            yield Mutant(
                kind=change.kind, description=change.description, transcript=change.transcript, for_run=(demand,)
            )
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


def describe_made_call(transcript: Transcript, index: int) -> str:
    call = transcript.calls[index]
    alike = [number for number, candidate in enumerate(transcript.calls) if candidate.name == call.name]
    return call.name if len(alike) == 1 else f"{call.name} (call {index + 1})"


def _generate_call_changes(transcript: Transcript) -> Iterator[Mutant]:
    calls = transcript.calls
    limit = {"max_function_calls": len(calls)}
    names = {"expected_function_calls": [call.name for call in calls]}
    for index, call in enumerate(calls):
        name = describe_made_call(transcript, index)
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
        description = (
            f"{describe_made_call(transcript, index + 1)} is called before {describe_made_call(transcript, index)}"
        )
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
    description = describe_made_call(observed.verdict.transcript, index)
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
                description=f"the {name} of {describe_made_call(transcript, index)} says something else for {fact}",
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


def _generate_key_mistakes(transcript: Transcript, index: int) -> Iterator[Mutant]:
    """Generate the mistakes that keys of an expected call would notice."""
    calls = transcript.calls
    names = {"expected_function_calls": [call.name for call in calls]}
    for key in list_call_keys().values():
        for change in key.mutate(calls[index]):
            yield Mutant(
                kind=change.kind, description=f"{describe_made_call(transcript, index)} {change.words}",
                transcript=replace_calls(transcript, (*calls[:index], change.call, *calls[index + 1 :])), call=index,
                for_call=({key.name: change.value},), for_run=(names,),
            )  # fmt: skip


def _generate_result_changes(transcript: Transcript, index: int) -> Iterator[Mutant]:
    calls = list(transcript.calls)
    call = calls[index]
    if call.result is None or call.answered_by == MOCK or call.is_denied:  # the answer is the case's own doing
        return
    path, value = list_first_leaves(call.result)[0]
    calls[index] = replace(call, result=replace_leaf(call.result, path, make_other_value(value)))
    yield Mutant(
        kind="change_result",
        description=f"{describe_made_call(transcript, index)} returns another {'.'.join(map(str, path)) or 'value'}",
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
