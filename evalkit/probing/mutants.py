"""What an agent might have done instead: transcripts with one thing changed, each with what would notice it.

Calls of one model turn have no order, so that they are not swapped; two calls that are alike are not either.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from evalkit.functions.violations import argument_violations
from evalkit.model.transcript import FunctionCall, Transcript
from evalkit.probing.forbidding import forbidden_calls
from evalkit.probing.observing import Observed
from evalkit.probing.values import (
    SOMETHING_ELSE,
    facts_of,
    is_long,
    nested,
    other_value,
    replaced,
    some_leaves,
    without,
)

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
    "change_result": "a function returns another value",
    "change_response": "the final response says something else",
    "stop_reason": "the run stops for another reason",
}
UNLISTED = "delete_everything"
FAILED_RESULT = {"error": {"type": "mutant", "message": "it failed"}}
_MAX_FACTS = 8

Keys = Mapping[str, Any]


class Mutant(Struct, frozen=True, kw_only=True):
    """A changed transcript. `for_call` and `for_run` are keys that might catch it, the best first: at the expected
    call that met call number `call`, and in `expected_output`."""

    kind: str
    what: str
    transcript: Transcript
    call: int | None = None
    for_call: tuple[Keys, ...] = ()
    for_run: tuple[Keys, ...] = ()


def mutants(observed: Observed) -> Iterator[Mutant]:
    """Every mutant of a passing run."""
    transcript = observed.verdict.transcript
    yield from _other_calls(transcript)
    yield from _more_calls(observed)
    yield from _forbidden_calls(observed)
    for index, call in enumerate(transcript.calls):
        if isinstance(call.arguments, dict):
            yield from _other_arguments(observed, index)
            yield from _texts(observed, index)
        yield from _other_results(transcript, index)
    yield from _other_run(observed)


def with_calls(transcript: Transcript, calls: Sequence[FunctionCall]) -> Transcript:
    """`transcript` with these calls instead, numbered anew."""
    return replace(transcript, calls=tuple(replace(call, index=index) for index, call in enumerate(calls)))


def _shown(transcript: Transcript, index: int) -> str:
    call = transcript.calls[index]
    alike = [number for number, other in enumerate(transcript.calls) if other.name == call.name]
    return call.name if len(alike) == 1 else f"{call.name} (call {index + 1})"


def _other_calls(transcript: Transcript) -> Iterator[Mutant]:
    calls = transcript.calls
    limit = {"max_function_calls": len(calls)}
    names = {"expected_function_calls": [call.name for call in calls]}
    for index, call in enumerate(calls):
        shown = _shown(transcript, index)
        fewer = with_calls(transcript, calls[:index] + calls[index + 1 :])
        at_call = ({"optional": False}, {"times": sum(other.name == call.name for other in calls)})
        yield Mutant(
            kind="drop_call", what=f"{shown} is not called", transcript=fewer, call=index, for_call=at_call,
            for_run=(names,),
        )  # fmt: skip
        twice = with_calls(transcript, calls[: index + 1] + calls[index:])
        forbid: tuple[Keys, ...] = ({"extra_calls": "forbid"}, names, limit)
        yield Mutant(
            kind="repeat_call", what=f"{shown} is called twice", transcript=twice, call=index,
            for_call=({"times": 1},), for_run=forbid,
        )  # fmt: skip
    for index in range(len(calls) - 1):
        one, other = calls[index], calls[index + 1]
        together = one.turn is not None and one.turn == other.turn
        alike = (one.name, one.arguments, one.outcome) == (other.name, other.arguments, other.outcome)
        if together or alike or one.user_turn != other.user_turn:
            continue
        turned = (replace(other, turn=one.turn), replace(one, turn=other.turn))
        what = f"{_shown(transcript, index + 1)} is called before {_shown(transcript, index)}"
        swapped = with_calls(transcript, calls[:index] + turned + calls[index + 2 :])
        yield Mutant(kind="swap_calls", what=what, transcript=swapped, for_run=({"call_order": "strict"}, names))


def _more_calls(observed: Observed) -> Iterator[Mutant]:
    transcript = observed.verdict.transcript
    calls = transcript.calls
    like = calls[-1] if calls else FunctionCall(name="", channel="native")
    base = FunctionCall(
        name="", result={"status": "done"}, turn=like.turn, user_turn=like.user_turn, channel=like.channel
    )
    made = {call.name for call in calls}
    names = {"expected_function_calls": [call.name for call in calls]}
    for name in [*(name for name in transcript.functions if name not in made), UNLISTED]:
        kind = "unlisted_call" if name == UNLISTED else "extra_call"
        extra = replace(base, name=name)
        yield Mutant(
            kind=kind, what=f"{name} is called as well", transcript=with_calls(transcript, (*calls, extra)),
            for_run=(
                {"forbidden_function_calls": [name]} if kind == "extra_call" else {"extra_calls": "forbid"},
                names,
                {"max_function_calls": len(calls)},
            ),
        )  # fmt: skip


def _forbidden_calls(observed: Observed) -> Iterator[Mutant]:
    """Each call that `forbidden_function_calls` names, with arguments that it describes; what can't be made is left."""
    transcript = observed.verdict.transcript
    like = transcript.calls[-1] if transcript.calls else FunctionCall(name="", channel="native")
    for name, arguments in forbidden_calls(observed.case):
        call = replace(
            FunctionCall(name=name, arguments=arguments, result={"status": "done"}, channel=like.channel),
            turn=like.turn, user_turn=like.user_turn,
        )  # fmt: skip
        calls = with_calls(transcript, (*transcript.calls, call))
        what = f"{name} is called, which is forbidden"
        yield Mutant(
            kind="forbidden_call", what=what, transcript=calls, for_run=({"forbidden_function_calls": [name]},)
        )


def _with_arguments(observed: Observed, index: int, arguments: dict[str, Any]) -> Transcript:
    """What the dispatcher would have recorded: the declared schema is asked again."""
    transcript = observed.verdict.transcript
    calls = list(transcript.calls)
    declaration = observed.declarations.get(calls[index].name)
    violations = () if declaration is None else argument_violations(declaration, arguments)
    calls[index] = replace(calls[index], arguments=arguments, violations=violations)
    return with_calls(transcript, calls)


def _properties(observed: Observed, name: str) -> Mapping[str, Any]:
    declaration = observed.declarations.get(name)
    found = (declaration.parameters or {}).get("properties") if declaration else None
    return found if isinstance(found, Mapping) else {}


def _other_arguments(observed: Observed, index: int) -> Iterator[Mutant]:
    call = observed.verdict.transcript.calls[index]
    shown = _shown(observed.verdict.transcript, index)
    schemas = _properties(observed, call.name)
    ignored = _ignored(observed)
    judged = {name: value for name, value in call.arguments.items() if name not in ignored}
    for path, value in some_leaves(judged) if judged else ():
        schema = schemas.get(str(path[0])) if len(path) == 1 else None
        other = other_value(value, schema if isinstance(schema, Mapping) else None)
        yield Mutant(
            kind="change_argument",
            what=f"{shown} gets another {'.'.join(map(str, path))}",
            transcript=_with_arguments(observed, index, replaced(call.arguments, path, other)),
            call=index,
            for_call=_demands(path, value),
        )
    for name, value in judged.items():
        less = {key: item for key, item in call.arguments.items() if key != name}
        demands = (*_demands((name,), value), {"arguments_contain": {name: {"$any": True}}})
        yield Mutant(
            kind="drop_argument", what=f"{shown} is called without {name}",
            transcript=_with_arguments(observed, index, less), call=index, for_call=demands,
        )  # fmt: skip
    unsent = [name for name in schemas if name not in call.arguments and name not in ignored]
    for name in unsent or ["unasked_for"]:
        value = other_value(None, schemas.get(name)) if name in schemas else SOMETHING_ELSE
        more = {**call.arguments, name: value}
        yield Mutant(
            kind="add_argument", what=f"{shown} gets {name} as well",
            transcript=_with_arguments(observed, index, more), call=index,
            for_call=({"arguments_absent": [name]},) if unsent else ({"arguments": call.arguments},),
        )  # fmt: skip


def _ignored(observed: Observed) -> frozenset[str]:
    """Arguments of which the case says that nothing is demanded."""
    said = observed.case.expected_output.get("ignored_arguments") or ()
    return frozenset([said] if isinstance(said, str) else said)


def _demands(path: tuple[str | int, ...], value: Any) -> tuple[Keys, ...]:
    if isinstance(value, str) and is_long(value):
        name = str(path[0])
        return ({f"{name}_contains": [phrase_of(value)]},) if len(path) == 1 else ()
    exact = {"arguments_contain": nested(path, {"$eq": value})}
    return ({"arguments_contain": nested(path, value)}, exact)


def phrase_of(text: str) -> str:
    """Some words of a text that say more than its greeting."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    longest = max(lines, key=len, default=text)
    return " ".join(longest.split()[:6])


def _texts(observed: Observed, index: int) -> Iterator[Mutant]:
    """Facts told wrongly in the prose of an argument."""
    transcript = observed.verdict.transcript
    call = transcript.calls[index]
    for name, text in call.arguments.items():
        if not isinstance(text, str) or not is_long(text):
            continue
        for fact in _facts_in(text, observed, index):
            changed = {**call.arguments, name: without(text, fact)}
            yield Mutant(
                kind="lose_fact", what=f"the {name} of {_shown(transcript, index)} says something else for {fact}",
                transcript=_with_arguments(observed, index, changed), call=index,
                for_call=({f"{name}_contains": [fact]},),
            )  # fmt: skip


def _facts_in(text: str, observed: Observed, before: int) -> list[str]:
    """What `text` tells of the results and arguments of the calls before it."""
    known = [fact for call in observed.verdict.transcript.calls[:before] for fact in facts_of(call.result)]
    known += [fact for call in observed.verdict.transcript.calls[:before] for fact in facts_of(call.arguments)]
    folded = text.casefold()
    return [fact for fact in dict.fromkeys(known) if fact.casefold() in folded][:_MAX_FACTS]


def _other_results(transcript: Transcript, index: int) -> Iterator[Mutant]:
    calls = list(transcript.calls)
    call = calls[index]
    if call.outcome == "ok":
        calls[index] = replace(call, outcome="error", result=FAILED_RESULT)
        names = {"expected_function_calls": [one.name for one in transcript.calls]}
        yield Mutant(
            kind="fail_call", what=f"{_shown(transcript, index)} fails", transcript=with_calls(transcript, calls),
            call=index, for_call=({"outcome": "ok"},), for_run=(names,),
        )  # fmt: skip
    if call.result is None:
        return
    path, value = some_leaves(call.result)[0]
    calls[index] = replace(call, result=replaced(call.result, path, other_value(value)))
    yield Mutant(
        kind="change_result",
        what=f"{_shown(transcript, index)} returns another {'.'.join(map(str, path)) or 'value'}",
        transcript=with_calls(transcript, calls),
        call=index,
        for_call=({"result_contains": nested(path, value)},),
    )


def _other_run(observed: Observed) -> Iterator[Mutant]:
    transcript = observed.verdict.transcript
    response = transcript.response
    if response.strip():
        says: tuple[Keys, ...] = ({"response_contains": [phrase_of(response)]},)
        yield Mutant(
            kind="change_response", what="the response says something else",
            transcript=_answering(transcript, SOMETHING_ELSE), for_run=says,
        )  # fmt: skip
        for fact in _facts_in(response, observed, len(transcript.calls)):
            yield Mutant(
                kind="lose_fact", what=f"the response says something else for {fact}",
                transcript=_answering(transcript, without(response, fact)), for_run=({"response_contains": [fact]},),
            )  # fmt: skip
    other = "max_iterations" if transcript.stop_reason != "max_iterations" else "completed"
    yield Mutant(
        kind="stop_reason", what=f"the run stops for the reason '{other}'",
        transcript=replace(transcript, stop_reason=other), for_run=({"stop_reason": transcript.stop_reason},),
    )  # fmt: skip


def _answering(transcript: Transcript, response: str) -> Transcript:
    responses = (*transcript.responses[:-1], response) if transcript.responses else ()
    return replace(transcript, response=response, responses=responses)
