"""Directives of mocks, read into answers: where they may stand, and what contradicts what."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import TYPE_CHECKING, Any

from evalkit.errors import EvalkitError, SpecError, did_you_mean, shown_path
from evalkit.functions.jsondata import recorded
from evalkit.functions.mockchecks import Place
from evalkit.functions.mockreader import NOTHING
from evalkit.functions.mocks import ENDINGS, ERROR, Answer, Call, Delayed, Match, Real, Rule, Sequence
from evalkit.operators.shown import shown

if TYPE_CHECKING:
    from evalkit.functions.mockreader import Reader

ANSWERS = ("$return", "$sequence", "$match", "$error", "$call", "$include", "$literal", "$real")
_BELONGS = {"$then": "$sequence", "$default": "$match"}
DIRECTIVES = (*ANSWERS, *_BELONGS, "$delay_ms")


class Directives:
    """Reads those of one case, for the `reader` of its mocks."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._wrong = reader.wrong
        self._ids = count()

    def read(self, data: Mapping[str, Any], place: Place) -> Answer:
        kinds = [key for key in ANSWERS if key in data]
        if not self._fits_together(data, kinds, place):
            return NOTHING
        kind = kinds[0]
        answer: Answer = getattr(self, f"_read_{kind[1:]}")(data, place)
        if "$delay_ms" not in data:
            return answer
        delay = data["$delay_ms"]
        if isinstance(delay, bool) or not isinstance(delay, (int, float)) or not 0 <= delay < float("inf"):
            from evalkit.operators.advice import number_advice

            advice = number_advice(delay)
            message = f"$delay_ms is a number of milliseconds, 0 or more; got {shown(delay)}{advice and f'; {advice}'}"
            return self._wrong(place, message, "$delay_ms")
        return Delayed(delay, answer)

    def _fits_together(self, data: Mapping[str, Any], kinds: list[str], place: Place) -> bool:
        before = len(self._reader.around.problems)
        here = shown_path(place.path)
        for key in data:
            if isinstance(key, str) and key.startswith("$") and key not in DIRECTIVES:
                near = did_you_mean(key, DIRECTIVES)
                message = f"unknown directive '{key}' in {here}{near or '; data with such keys goes under $literal'}"
                self._wrong(place, message, key, at_key=True)
            elif key in _BELONGS and _BELONGS[key] not in data:
                self._wrong(
                    place, f"'{key}' in {here} belongs to '{_BELONGS[key]}', which is not there", key, at_key=True
                )
        plain = [key for key in data if not (isinstance(key, str) and key.startswith("$"))]
        if len(self._reader.around.problems) > before:
            return False
        if len(kinds) > 1:
            self._wrong(
                place, f"'{kinds[0]}' and '{kinds[1]}' in {here} contradict each other: one mapping, one answer"
            )
        elif plain and kinds != ["$include"]:
            beside = kinds[0] if kinds else "$delay_ms"
            message = f"'{plain[0]}' in {here} stands beside '{beside}'; the answer's own keys belong under '$return'"
            self._wrong(place, message, plain[0], at_key=True)
        elif not kinds:
            self._wrong(place, f"{here} has no answer beside '$delay_ms'; add one of {', '.join(ANSWERS)}")
        return len(self._reader.around.problems) == before

    def _read_return(self, data: Mapping[str, Any], place: Place) -> Answer:
        return self._reader.answer(data["$return"], place.down("$return"))

    def _read_literal(self, data: Mapping[str, Any], place: Place) -> Answer:
        return self._reader.static(data["$literal"], place.down("$literal"), literal=True)

    def _read_error(self, data: Mapping[str, Any], place: Place) -> Answer:
        from evalkit.functions.failurereader import read_failure

        return read_failure(data["$error"], place.down("$error"), self._reader.around) or NOTHING

    def _read_real(self, data: Mapping[str, Any], place: Place) -> Answer:
        if data["$real"] is not True:
            return self._wrong(place, f"$real can only be true; got {shown(data['$real'])}", "$real")
        return Real()

    def _read_call(self, data: Mapping[str, Any], place: Place) -> Answer:
        from evalkit.functions.targets import TargetError, check_form, find

        target, example = data["$call"], "mocks.warranty:create_ticket"
        try:
            if not self._reader.around.check_targets:
                return Call(check_form(target, example)[0])
            found = find(target, example).value
        except TargetError as error:
            return self._wrong(place, f"$call: {error}", "$call")
        if not callable(found):
            return self._wrong(place, f"$call: '{target}' is not callable but {shown(found)}", "$call")
        return Call(target)

    def _read_sequence(self, data: Mapping[str, Any], place: Place) -> Answer:
        elements, ending = data["$sequence"], data.get("$then", ERROR)
        if not isinstance(elements, list) or not elements:
            return self._wrong(place, f"$sequence is a list of one answer or more; got {shown(elements)}", "$sequence")
        if ending not in ENDINGS:
            message = f"$then is one of {', '.join(ENDINGS)}; got {shown(ending)}{did_you_mean(ending, ENDINGS)}"
            return self._wrong(place, message, "$then")
        number = next(self._ids)
        inner = place.down("$sequence")
        return Sequence(number, tuple(self._reader.answer(e, inner.down(i)) for i, e in enumerate(elements)), ending)

    def _read_match(self, data: Mapping[str, Any], place: Place) -> Answer:
        rules = data["$match"]
        if not isinstance(rules, list) or not rules:
            return self._wrong(place, f"$match is a list of one rule or more; got {shown(rules)}", "$match")
        number = next(self._ids)
        read = [self._rule(rule, place.down("$match", index)) for index, rule in enumerate(rules)]
        default = self._reader.answer(data["$default"], place.down("$default")) if "$default" in data else None
        return Match(number, tuple(rule for rule in read if rule is not None), default)

    def _rule(self, rule: Any, place: Place) -> Rule | None:
        here = shown_path(place.path)
        if not isinstance(rule, Mapping):
            self._wrong(place, f"a $match rule is a mapping with 'when' and an answer; got {shown(rule)}")
            return None
        rest = {key: value for key, value in rule.items() if key != "when"}
        odd = [key for key in rest if not (isinstance(key, str) and key.startswith("$"))]
        if odd and "$include" not in rest:
            hint = did_you_mean(odd[0], ("when", *DIRECTIVES)) or "; what the rule answers belongs under '$return'"
            self._wrong(place, f"unknown key '{odd[0]}' in {here}{hint}", odd[0], at_key=True)
        elif "when" not in rule:
            self._wrong(place, f"{here} has no 'when'; an answer for all other arguments goes under '$default'")
        elif not rest:
            self._wrong(place, f"{here} has no answer beside 'when'; add '$return' or another directive")
        else:
            matcher = self._reader.around.matcher(rule["when"], place.down("when"))
            answer = self.read(rest, place)
            return Rule(matcher, recorded(rule["when"]), answer) if matcher is not None else None
        return None

    def _read_include(self, data: Mapping[str, Any], place: Place) -> Answer:
        name = data["$include"]
        if not isinstance(name, str) or not name:
            return self._wrong(place, f"$include names a file under mocks/; got {shown(name)}", "$include")
        if name in place.including:
            return self._wrong(place, f"$include goes in a circle: {' -> '.join((*place.including, name))}", "$include")
        if self._reader.include is None:
            return self._wrong(place, f"$include: there is no folder of mocks to find '{name}' in", "$include")
        try:
            content = self._reader.include(name)
        except SpecError as error:
            for problem in error.problems:
                self._wrong(place, f"$include '{name}': {problem}", "$include")
            return NOTHING
        except (EvalkitError, LookupError, OSError) as error:
            return self._wrong(place, f"$include: {error.args[0] if error.args else error}", "$include")
        changes = {key: value for key, value in data.items() if not (isinstance(key, str) and key.startswith("$"))}
        if changes:
            content = self._changed(content, changes, place, name)
        return self._reader.answer(content, place.into(name, changes))

    def _changed(self, content: Any, changes: Mapping[str, Any], place: Place, name: str) -> Any:
        """`content` with the keys beside `$include` laid over it, mapping by mapping."""
        for kind in ("$return", "$literal"):
            if isinstance(content, Mapping) and kind in content:
                inner = content[kind]
                is_data = kind == "$literal" and isinstance(inner, Mapping)
                changed = merged(inner, changes) if is_data else self._changed(inner, changes, place, name)
                return {**content, kind: changed}
        if not isinstance(content, Mapping) or any(str(key).startswith("$") for key in content):
            first = next(iter(changes))
            kind = "a directive" if isinstance(content, Mapping) else shown(content)
            self._wrong(place, f"'{first}' can't be laid over '{name}', which is {kind} and no plain mapping", first)
            return None
        return merged(content, changes)


def merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with `changes` laid over it: mappings key by key; all else, lists and null too, replaces."""
    result = dict(base)
    for key, value in changes.items():
        old = result.get(key)
        both = isinstance(old, Mapping) and isinstance(value, Mapping)
        result[key] = merged(old, value) if both and isinstance(old, Mapping) else value
    return result
