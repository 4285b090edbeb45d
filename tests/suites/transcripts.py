"""Transcripts in which one thing went wrong that the case forbids, each with the codes that would fit."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

import evalkit
from evalkit.records.template import Reference, follow_path, parse_template
from evalkit.records.transcript import FunctionCall, Timing, Transcript, Violation
from tests.suites.suite import GROUPS

ERROR = {"error": {"type": "perturbed", "message": "it failed"}}


class Perturbed(NamedTuple):
    """A transcript in which one thing is different, and the codes of which one must be among the reasons."""

    what: str
    transcript: Transcript
    codes: set[str]


class Met(NamedTuple):
    """An expected call, and the place of the actual call that satisfied it."""

    expected: dict[str, Any]
    place: int


def with_calls(transcript: Transcript, calls: Sequence[FunctionCall]) -> Transcript:
    return replace(transcript, calls=tuple(replace(call, index=index) for index, call in enumerate(calls)))


def with_call(transcript: Transcript, index: int, **changes: Any) -> Transcript:
    calls = list(transcript.calls)
    calls[index] = replace(calls[index], **changes)
    return with_calls(transcript, calls)


def with_argument(transcript: Transcript, index: int, name: str, value: Any) -> Transcript:
    return with_call(transcript, index, arguments={**transcript.calls[index].arguments, name: value})


def met_calls(case: evalkit.Case, verdict: evalkit.Verdict) -> list[Met]:
    """Which expected call each actual call satisfied, by the place that the verdict names."""
    expected = dict(leaves(case.expected_output.get("expected_function_calls", []), ""))
    return [
        Met(expected[line.expectation.removeprefix("expected_output.expected_function_calls")], line.call.index)
        for line in verdict.calls
        if line.call is not None
    ]


def leaves(items: list[Any], place: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for number, item in enumerate(items):
        here = f"{place}[{number}]"
        group = next((key for key in GROUPS if isinstance(item, dict) and key in item), None)
        if group:
            yield from leaves(item[group], f"{here}.{group}")
        else:
            yield here, {"function_name": item} if isinstance(item, str) else item


def phrases(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else list(value or [])


def rendered(phrase: str, transcript: Transcript) -> str:
    """`phrase` with its templates filled in from the successful calls of `transcript`."""
    template = parse_template(phrase)
    if isinstance(template, str):
        return template
    return "".join(part if isinstance(part, str) else str(looked_up(part, transcript)) for part in template.parts)


def looked_up(reference: Reference, transcript: Transcript) -> Any:
    assert reference.root == "calls"
    name, *path = reference.path
    calls = [call for call in transcript.calls if call.name == name and call.outcome == "ok"]
    number = path.pop(0) if isinstance(path[0], int) else 1
    assert isinstance(number, int)
    call = calls[number - 1]
    return follow_path({"result": call.result, "arguments": call.arguments}, tuple(path), reference.text)


def without(text: str, phrase: str) -> str:
    """`text` without `phrase`, wherever its lines are broken."""
    pattern = r"\s+".join(map(re.escape, phrase.split()))
    cut = re.sub(pattern, "", text, flags=re.IGNORECASE)
    assert cut != text, f"{phrase!r} is not in the text"
    return cut


# What can go wrong with the calls as a whole.


def other_calls(case: evalkit.Case, transcript: Transcript) -> Iterator[Perturbed]:
    calls = transcript.calls
    for index, call in enumerate(calls):
        shown = f"call {index + 1}, {call.name}"
        yield Perturbed(f"drop {shown}", with_calls(transcript, calls[:index] + calls[index + 1 :]), {"missing_call"})
        twice = with_calls(transcript, calls[: index + 1] + calls[index:])
        yield Perturbed(f"repeat {shown}", twice, {"unexpected_call"})
        renamed = with_call(transcript, index, name="delete_everything")
        yield Perturbed(f"another function instead of {shown}", renamed, {"missing_call", "unexpected_call"})
    extra = replace(calls[-1], name="delete_everything", arguments={}) if calls else FunctionCall(name="send_email")
    yield Perturbed("one call more", with_calls(transcript, (*calls, extra)), {"unexpected_call"})


def swapped(transcript: Transcript) -> Iterator[tuple[int, Transcript]]:
    calls = transcript.calls
    for index in range(len(calls) - 1):
        one, other = calls[index], calls[index + 1]
        if (one.name, one.arguments, one.outcome) != (other.name, other.arguments, other.outcome):
            turned = (replace(other, turn=one.turn), replace(one, turn=other.turn))
            yield index, with_calls(transcript, calls[:index] + turned + calls[index + 2 :])


def forbidden_calls(case: evalkit.Case, transcript: Transcript) -> Iterator[Perturbed]:
    listed = case.expected_output.get("forbidden_function_calls", [])
    for item in listed if isinstance(listed, list) else [listed]:
        rule: dict[str, Any] = {"function_name": item} if isinstance(item, str) else item
        wanted = rule.get("arguments_contain", {})
        arguments = {name: "SN1'; DROP" if isinstance(value, dict) else value for name, value in wanted.items()}
        attempt = FunctionCall(name=rule["function_name"], arguments=arguments, outcome="error", result=ERROR)
        yield Perturbed(f"attempt {item}", with_calls(transcript, (attempt, *transcript.calls)), {"forbidden_call"})


# What can go wrong with one call.


def other_arguments(met: Met, transcript: Transcript) -> Iterator[Perturbed]:
    call, expected = transcript.calls[met.place], met.expected
    for key in ("arguments", "arguments_contain"):
        for name, wanted in expected.get(key, {}).items():
            codes = {"wrong_argument"}
            if isinstance(wanted, dict):
                value, codes = breaking(wanted, transcript, met.place, name)
            else:
                value = "something else"
            what = f"{call.name}.{name} = {value!r}"
            yield Perturbed(what, with_argument(transcript, met.place, name, value), codes)
            less = {other: value for other, value in call.arguments.items() if other != name}
            what = f"{call.name} without {name}"
            yield Perturbed(what, with_call(transcript, met.place, arguments=less), {"missing_argument"})
    if "arguments" in expected:
        what = f"{call.name} with one argument more"
        yield Perturbed(what, with_argument(transcript, met.place, "force", True), {"unexpected_argument"})
    for name in phrases(expected.get("arguments_absent")):
        what = f"{call.name} with {name}"
        yield Perturbed(what, with_argument(transcript, met.place, name, "sent"), {"unexpected_argument"})


def breaking(operator: dict[str, Any], transcript: Transcript, index: int, name: str) -> tuple[Any, set[str]]:
    """A value that an operator refuses."""
    if "$any" in operator:
        return None, {"text_missing", "wrong_argument"}  # present is enough here; its phrases are looked for as well
    if "$not" in operator:
        return "take SN 99999", {"wrong_argument"}
    return {"not": "a text"}, {"wrong_argument"}


def other_texts(met: Met, transcript: Transcript) -> Iterator[Perturbed]:
    call = transcript.calls[met.place]
    for key, value in met.expected.items():
        argument, _, kind = key.rpartition("_")
        if kind not in ("contains", "excludes") or argument == "result":
            continue
        text = call.arguments[argument]
        for phrase in phrases(value):
            phrase = rendered(phrase, transcript)
            if kind == "contains":
                changed = with_argument(transcript, met.place, argument, without(text, phrase))
                yield Perturbed(f"{argument} without {phrase!r}", changed, {"text_missing"})
            else:
                changed = with_argument(transcript, met.place, argument, f"{text}\n{phrase}\n")
                yield Perturbed(f"{argument} with {phrase!r}", changed, {"text_forbidden"})


def other_results(met: Met, transcript: Transcript) -> Iterator[Perturbed]:
    call, expected = transcript.calls[met.place], met.expected
    if expected.get("outcome", "ok") == "ok":
        failed = with_call(transcript, met.place, outcome="error", result=ERROR)
    else:
        failed = with_call(transcript, met.place, outcome="ok")
    yield Perturbed(f"{call.name} with another outcome", failed, {"wrong_outcome"})
    for name in expected.get("result_contains", {}):
        result = {**call.result, name: "something else"}
        changed = with_call(transcript, met.place, result=result)
        yield Perturbed(f"{call.name} returns another {name}", changed, {"result_mismatch"})
    if "channel" in expected:
        other = "native" if call.channel == "text" else "text"
        changed = with_call(transcript, met.place, channel=other)
        yield Perturbed(f"{call.name} by channel {other}", changed, {"wrong_channel"})
    if expected.get("valid", True):
        broken = Violation(path=(), schema_path=("type",), message="it is broken")
        changed = with_call(transcript, met.place, violations=(broken,))
        yield Perturbed(f"{call.name} with arguments that break its schema", changed, {"invalid_arguments"})
    else:
        changed = with_call(transcript, met.place, violations=())
        yield Perturbed(f"{call.name} with arguments that fit its schema", changed, {"valid_arguments"})


def ungrounded(case: evalkit.Case, met: Met, transcript: Transcript) -> Iterator[Perturbed]:
    arguments = transcript.calls[met.place].arguments
    for rule in (case.expected_output.get("grounded", []), met.expected.get("grounded", [])):
        for name in arguments if rule is True else [name for name in phrases(rule) if name in arguments]:
            made_up = with_argument(transcript, met.place, name, "QX8675309")
            yield Perturbed(f"a made-up {name}", made_up, {"ungrounded_argument"})


# What can go wrong with the run.


def other_runs(case: evalkit.Case, transcript: Transcript) -> Iterator[Perturbed]:
    wanted = case.expected_output
    slow = Timing(model_ms=100_000, overhead_ms=100_000)
    if "scenario_instruction_used" in wanted:
        yield Perturbed("another instruction", replace(transcript, instruction_used="recall"), {"wrong_instruction"})
    yield Perturbed("another stop reason", replace(transcript, stop_reason="max_iterations"), {"stop_reason"})
    yield Perturbed("slow code", replace(transcript, timing=slow), {"budget_exceeded"})
    if "max_model_turns" in wanted:
        turns = transcript.turns[:1] * (wanted["max_model_turns"] + 1)
        yield Perturbed("more turns", replace(transcript, turns=turns), {"budget_exceeded"})
    if "max_function_calls" in wanted:
        calls = transcript.calls[:1] * (wanted["max_function_calls"] + 1)
        yield Perturbed("more calls", with_calls(transcript, calls), {"budget_exceeded"})
    for phrase in phrases(wanted.get("response_contains")):
        changed = replace(transcript, response=without(transcript.response, phrase))
        yield Perturbed(f"response without {phrase!r}", changed, {"text_missing"})
    for phrase in phrases(wanted.get("response_excludes")):
        changed = replace(transcript, response=f"{transcript.response}\n{phrase}\n")
        yield Perturbed(f"response with {phrase!r}", changed, {"text_forbidden"})
    if "processing_time_ms" in wanted:
        late = Timing(model_ms=wanted["processing_time_ms"] + 1)
        yield Perturbed("a slow model", replace(transcript, timing=late), {"budget_exceeded"})


def older_keys(case: evalkit.Case, transcript: Transcript) -> Iterator[Perturbed]:
    wanted = case.expected_output
    for key, name in (("email_sent", "send_email"), ("ticket_created", "create_ticket")):
        if wanted.get(key) is False:
            done = FunctionCall(name=name, arguments={"serial_number": "SN1"}, result={"status": "done"})
            yield Perturbed(f"{name} is called", with_calls(transcript, (*transcript.calls, done)), {"unexpected_call"})
        elif wanted.get(key) is True:
            left = [call for call in transcript.calls if call.name != name]
            yield Perturbed(f"{name} is not called", with_calls(transcript, left), {"missing_call"})
    numbers = {call.name: call.index for call in transcript.calls}
    for name in wanted.get("ticket_fields", {}):
        changed = with_argument(transcript, numbers["create_ticket"], name, "something else")
        yield Perturbed(f"ticket with another {name}", changed, {"wrong_argument"})
    for phrase in phrases(wanted.get("response_body_contains")):
        body = without(transcript.calls[-1].arguments["body"], phrase)
        changed = with_argument(transcript, numbers["send_email"], "body", body)
        yield Perturbed(f"body without {phrase!r}", changed, {"text_missing"})
    for phrase in phrases(wanted.get("response_body_excludes")):
        changed = with_argument(transcript, numbers["send_email"], "body", f"{wanted} {phrase}")
        yield Perturbed(f"body with {phrase!r}", changed, {"text_forbidden"})


def perturbed(case: evalkit.Case, verdict: evalkit.Verdict) -> Iterator[Perturbed]:
    transcript = verdict.transcript
    yield from other_calls(case, transcript)
    yield from forbidden_calls(case, transcript)
    yield from other_runs(case, transcript)
    yield from older_keys(case, transcript)
    for met in met_calls(case, verdict):
        yield from other_arguments(met, transcript)
        yield from other_texts(met, transcript)
        yield from other_results(met, transcript)
        yield from ungrounded(case, met, transcript)
