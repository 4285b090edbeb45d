"""Which leaf of a mock answers a call, and what no call ever came to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import Struct, field

from evalkit.functions.mocks import (
    CYCLE,
    REPEAT_LAST,
    Answer,
    Delayed,
    Failure,
    Leaf,
    Match,
    MockSet,
    Real,
    Rule,
    Sequence,
)
from evalkit.functions.mocks import Call as CallAnswer
from evalkit.functions.statics import Resolve
from evalkit.model.template import TemplateError
from evalkit.operators.shown import shown


class UnansweredError(Exception):
    """The mock has nothing for this call."""


class Chosen(Struct):
    """The leaf that answers, the latency on the way to it, and how the record names it."""

    leaf: Leaf
    delay_ms: float = 0.0
    label: str = ""


class Progress(Struct):
    """What of the mocks has been used in one run: calls per sequence, and branches taken."""

    calls: dict[int, int] = field(default_factory=dict)
    taken: set[tuple[int, int]] = field(default_factory=set)

    def choose(self, name: str, answer: Answer, arguments: Any, resolve: Resolve) -> Chosen:
        """Walk down `answer` to a leaf. UnansweredError where a sequence is used up or no rule fits."""
        delay, steps = 0.0, []
        while True:
            if isinstance(answer, Delayed):
                delay, answer = delay + answer.delay_ms, answer.answer
            elif isinstance(answer, Sequence):
                index = self._next(name, answer)
                steps.append(f"$sequence[{index}]")
                answer = answer.elements[index]
            elif isinstance(answer, Match):
                step, answer = self._first_fit(name, answer, arguments, resolve)
                steps.append(step)
            else:
                label = _LABELS.get(type(answer))
                return Chosen(answer, delay, ".".join((*steps, label) if label else steps))

    def _next(self, name: str, sequence: Sequence) -> int:
        asked = self.calls.get(sequence.id, 0)
        length = len(sequence.elements)
        if asked >= length and sequence.ending not in (REPEAT_LAST, CYCLE):
            count = "1 element, and it is" if length == 1 else f"{length} elements, and all are"
            raise UnansweredError(f"the $sequence of {name} has {count} used up; add one, or '$then'")
        self.calls[sequence.id] = asked + 1
        index = asked % length if sequence.ending == CYCLE else min(asked, length - 1)
        self.taken.add((sequence.id, index))
        return index

    def _first_fit(self, name: str, match: Match, arguments: Any, resolve: Resolve) -> tuple[str, Answer]:
        for index, rule in enumerate(match.rules):
            if _fits(rule, arguments, resolve):
                self.taken.add((match.id, index))
                return f"$match[{index}]", rule.answer
        if match.default is None:
            fitting = f"no $match rule of {name} fits {shown(arguments, 120)}"
            raise UnansweredError(f"{fitting}; add a rule, or '$default' for all other arguments")
        self.taken.add((match.id, -1))
        return "$default", match.default

    def unused(self, mocks: MockSet, called: frozenset[str], unknown: frozenset[str]) -> Iterator[str]:
        """Each mock, rule and sequence element that no call used, as a sentence. `called` are the mocks' own names,
        `unknown` those of calls that were refused because nothing declares them.
        """
        for name, answer in mocks.answers.items():
            if name in mocks.shared:
                continue
            if name in called:
                yield from self._unused(answer, name)
            elif name in unknown:
                yield f"{name} is mocked, and was refused: the model was told of no such function, so declare it"
            else:
                yield f"{name} is mocked, and was never called"

    def _unused(self, answer: Answer, place: str) -> Iterator[str]:
        if isinstance(answer, Delayed):
            yield from self._unused(answer.answer, place)
        elif isinstance(answer, Sequence):
            for index, element in enumerate(answer.elements):
                here = f"{place}.$sequence[{index}]"
                if (answer.id, index) in self.taken:
                    yield from self._unused(element, here)
                else:
                    yield f"{here} was never reached"
        elif isinstance(answer, Match):
            for index, rule in enumerate(answer.rules):
                here = f"{place}.$match[{index}]"
                if (answer.id, index) in self.taken:
                    yield from self._unused(rule.answer, here)
                else:
                    yield f"{here} (when {shown(rule.when, 120)}) answered no call"
            if answer.default is not None and (answer.id, -1) in self.taken:
                yield from self._unused(answer.default, f"{place}.$default")


_LABELS: dict[type, str] = {Failure: "$error", CallAnswer: "$call", Real: "$real"}


def _fits(rule: Rule, arguments: Any, resolve: Resolve) -> bool:
    matcher = rule.matcher
    if matcher.has_templates:
        try:
            matcher = matcher.bind(resolve)
        except TemplateError:
            return False  # e.g. the id of a ticket that no call has created yet
    return bool(matcher.matches(arguments))
