"""Directives of mocks, read into answers: where they may stand, and what contradicts what."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import TYPE_CHECKING, Any

from evalkit.errors import EvalkitError, SpecError, did_you_mean, format_path
from evalkit.functions.jsondata import to_recordable_json
from evalkit.functions.mockchecks import MockPlace
from evalkit.functions.mockreader import PLACEHOLDER
from evalkit.functions.mocks import (
    ENDINGS,
    ERROR,
    Answer,
    CallableAnswer,
    DelayedAnswer,
    MatchAnswer,
    MatchRule,
    RealAnswer,
    SequenceAnswer,
)
from evalkit.operators.shown import format_value

if TYPE_CHECKING:
    from evalkit.functions.mockreader import MockReader

ANSWERS = ("$return", "$sequence", "$match", "$error", "$call", "$include", "$literal", "$real")
_COMPANIONS = {"$then": "$sequence", "$default": "$match"}
DIRECTIVES = (*ANSWERS, *_COMPANIONS, "$delay_ms")


class DirectiveReader:
    """Reads those of one case, for the `reader` of its mocks."""

    def __init__(self, reader: MockReader) -> None:
        self._reader = reader
        self._add_problem = reader.add_problem
        self._ids = count()

    def read(self, data: Mapping[str, Any], place: MockPlace) -> Answer:
        kinds = [key for key in ANSWERS if key in data]
        if not self._check_keys(data, kinds, place):
            return PLACEHOLDER
        kind = kinds[0]
        answer: Answer = getattr(self, f"_read_{kind[1:]}")(data, place)
        if "$delay_ms" not in data:
            return answer
        delay = data["$delay_ms"]
        if isinstance(delay, bool) or not isinstance(delay, (int, float)) or not 0 <= delay < float("inf"):
            from evalkit.operators.advice import suggest_number

            advice = suggest_number(delay)
            message = (
                f"$delay_ms is a number of milliseconds, 0 or more; got {format_value(delay)}{advice and f'; {advice}'}"
            )
            return self._add_problem(place, message, "$delay_ms")
        return DelayedAnswer(delay, answer)

    def _check_keys(self, data: Mapping[str, Any], kinds: list[str], place: MockPlace) -> bool:
        before = len(self._reader.context.problems)
        here = format_path(place.path)
        for key in data:
            if isinstance(key, str) and key.startswith("$") and key not in DIRECTIVES:
                hint = did_you_mean(key, DIRECTIVES)
                message = f"unknown directive '{key}' in {here}{hint or '; data with such keys goes under $literal'}"
                self._add_problem(place, message, key, at_key=True)
            elif key in _COMPANIONS and _COMPANIONS[key] not in data:
                self._add_problem(
                    place, f"'{key}' in {here} belongs to '{_COMPANIONS[key]}', which is not there", key, at_key=True
                )
        plain = [key for key in data if not (isinstance(key, str) and key.startswith("$"))]
        if len(self._reader.context.problems) > before:
            return False
        if len(kinds) > 1:
            self._add_problem(
                place, f"'{kinds[0]}' and '{kinds[1]}' in {here} contradict each other: one mapping, one answer"
            )
        elif plain and kinds != ["$include"]:
            directive = kinds[0] if kinds else "$delay_ms"
            message = (
                f"'{plain[0]}' in {here} stands beside '{directive}'; the answer's own keys belong under '$return'"
            )
            self._add_problem(place, message, plain[0], at_key=True)
        elif not kinds:
            self._add_problem(place, f"{here} has no answer beside '$delay_ms'; add one of {', '.join(ANSWERS)}")
        return len(self._reader.context.problems) == before

    def _read_return(self, data: Mapping[str, Any], place: MockPlace) -> Answer:
        return self._reader.read_answer(data["$return"], place.enter("$return"))

    def _read_literal(self, data: Mapping[str, Any], place: MockPlace) -> Answer:
        return self._reader.read_static(data["$literal"], place.enter("$literal"), literal=True)

    def _read_error(self, data: Mapping[str, Any], place: MockPlace) -> Answer:
        from evalkit.functions.failurereader import read_failure

        return read_failure(data["$error"], place.enter("$error"), self._reader.context) or PLACEHOLDER

    def _read_real(self, data: Mapping[str, Any], place: MockPlace) -> Answer:
        if data["$real"] is not True:
            return self._add_problem(place, f"$real can only be true; got {format_value(data['$real'])}", "$real")
        return RealAnswer()

    def _read_call(self, data: Mapping[str, Any], place: MockPlace) -> Answer:
        from evalkit.functions.targets import TargetError, check_form, find_object

        target, example = data["$call"], "mocks.warranty:create_ticket"
        try:
            if not self._reader.context.check_targets:
                return CallableAnswer(check_form(target, example)[0])
            function = find_object(target, example).value
        except TargetError as error:
            return self._add_problem(place, f"$call: {error}", "$call")
        if not callable(function):
            return self._add_problem(place, f"$call: '{target}' is not callable but {format_value(function)}", "$call")
        return CallableAnswer(target)

    def _read_sequence(self, data: Mapping[str, Any], place: MockPlace) -> Answer:
        elements, ending = data["$sequence"], data.get("$then", ERROR)
        if not isinstance(elements, list) or not elements:
            return self._add_problem(
                place, f"$sequence is a list of one answer or more; got {format_value(elements)}", "$sequence"
            )
        if ending not in ENDINGS:
            message = f"$then is one of {', '.join(ENDINGS)}; got {format_value(ending)}{did_you_mean(ending, ENDINGS)}"
            return self._add_problem(place, message, "$then")
        number = next(self._ids)
        inner = place.enter("$sequence")
        return SequenceAnswer(
            number, tuple(self._reader.read_answer(e, inner.enter(i)) for i, e in enumerate(elements)), ending
        )

    def _read_match(self, data: Mapping[str, Any], place: MockPlace) -> Answer:
        rules = data["$match"]
        if not isinstance(rules, list) or not rules:
            return self._add_problem(
                place, f"$match is a list of one rule or more; got {format_value(rules)}", "$match"
            )
        number = next(self._ids)
        read = [self._read_rule(rule, place.enter("$match", index)) for index, rule in enumerate(rules)]
        default = self._reader.read_answer(data["$default"], place.enter("$default")) if "$default" in data else None
        return MatchAnswer(number, tuple(rule for rule in read if rule is not None), default)

    def _read_rule(self, rule: Any, place: MockPlace) -> MatchRule | None:
        here = format_path(place.path)
        if not isinstance(rule, Mapping):
            self._add_problem(place, f"a $match rule is a mapping with 'when' and an answer; got {format_value(rule)}")
            return None
        rest = {key: value for key, value in rule.items() if key != "when"}
        odd = [key for key in rest if not (isinstance(key, str) and key.startswith("$"))]
        if odd and "$include" not in rest:
            hint = did_you_mean(odd[0], ("when", *DIRECTIVES)) or "; what the rule answers belongs under '$return'"
            self._add_problem(place, f"unknown key '{odd[0]}' in {here}{hint}", odd[0], at_key=True)
        elif "when" not in rule:
            self._add_problem(place, f"{here} has no 'when'; an answer for all other arguments goes under '$default'")
        elif not rest:
            self._add_problem(place, f"{here} has no answer beside 'when'; add '$return' or another directive")
        else:
            matcher = self._reader.context.compile_when(rule["when"], place.enter("when"))
            answer = self.read(rest, place)
            return MatchRule(matcher, to_recordable_json(rule["when"]), answer) if matcher is not None else None
        return None

    def _read_include(self, data: Mapping[str, Any], place: MockPlace) -> Answer:
        name = data["$include"]
        if not isinstance(name, str) or not name:
            return self._add_problem(place, f"$include names a file under mocks/; got {format_value(name)}", "$include")
        if name in place.including:
            return self._add_problem(
                place, f"$include goes in a circle: {' -> '.join((*place.including, name))}", "$include"
            )
        if self._reader.include is None:
            return self._add_problem(place, f"$include: there is no folder of mocks to find '{name}' in", "$include")
        try:
            content = self._reader.include(name)
        except SpecError as error:
            for problem in error.problems:
                self._add_problem(place, f"$include '{name}': {problem}", "$include")
            return PLACEHOLDER
        except (EvalkitError, LookupError, OSError) as error:
            return self._add_problem(place, f"$include: {error.args[0] if error.args else error}", "$include")
        changes = {key: value for key, value in data.items() if not (isinstance(key, str) and key.startswith("$"))}
        if changes:
            content = self._apply_changes(content, changes, place, name)
        return self._reader.read_answer(content, place.enter_include(name, changes))

    def _apply_changes(self, content: Any, changes: Mapping[str, Any], place: MockPlace, name: str) -> Any:
        """`content` with the keys beside `$include` laid over it, mapping by mapping."""
        for kind in ("$return", "$literal"):
            if isinstance(content, Mapping) and kind in content:
                inner = content[kind]
                is_data = kind == "$literal" and isinstance(inner, Mapping)
                changed = (
                    merge_mappings(inner, changes) if is_data else self._apply_changes(inner, changes, place, name)
                )
                return {**content, kind: changed}
        if not isinstance(content, Mapping) or any(str(key).startswith("$") for key in content):
            first = next(iter(changes))
            kind = "a directive" if isinstance(content, Mapping) else format_value(content)
            self._add_problem(
                place, f"'{first}' can't be laid over '{name}', which is {kind} and no plain mapping", first
            )
            return None
        return merge_mappings(content, changes)


def merge_mappings(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with `changes` laid over it: mappings key by key; all else, lists and null too, replaces."""
    result = dict(base)
    for key, value in changes.items():
        old = result.get(key)
        both = isinstance(old, Mapping) and isinstance(value, Mapping)
        result[key] = merge_mappings(old, value) if both and isinstance(old, Mapping) else value
    return result
