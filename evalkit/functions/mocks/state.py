"""Select the leaf of a mock that answers a call, and report the parts that no call used."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct, field

from evalkit.functions.mocks.answers import (
    CYCLE,
    REPEAT_LAST,
    Answer,
    DelayedAnswer,
    FailureAnswer,
    Leaf,
    MatchAnswer,
    MatchRule,
    MockSet,
    RealAnswer,
    Resolve,
    SequenceAnswer,
)
from evalkit.functions.mocks.answers import CallableAnswer as CallAnswer
from evalkit.model.template import TemplateError
from evalkit.text.format import format_value


class UnansweredError(Exception):
    """The mock has nothing for this call."""


class SelectedAnswer(Struct):
    """The leaf that answers, the latency on the way to it, and how the record names it."""

    leaf: Leaf
    delay_ms: float = 0.0
    label: str = ""


class MockState(Struct):
    """Use of the mocks in one run: calls per sequence, and branches taken."""

    call_counts: dict[int, int] = field(default_factory=dict)
    used_branches: set[tuple[int, int]] = field(default_factory=set)

    def select(self, name: str, answer: Answer, arguments: object, resolve: Resolve) -> SelectedAnswer:
        """Walk down `answer` to a leaf. UnansweredError where a sequence is used up or no rule fits."""
        delay, steps = 0.0, []
        while True:
            if isinstance(answer, DelayedAnswer):
                delay, answer = delay + answer.delay_ms, answer.answer
            elif isinstance(answer, SequenceAnswer):
                index = self._select_element(name, answer)
                steps.append(f"$sequence[{index}]")
                answer = answer.elements[index]
            elif isinstance(answer, MatchAnswer):
                step, answer = self._select_rule(name, answer, arguments, resolve)
                steps.append(step)
            else:
                label = _LABELS.get(type(answer))
                return SelectedAnswer(answer, delay, ".".join((*steps, label) if label else steps))

    def _select_element(self, name: str, sequence: SequenceAnswer) -> int:
        call_count = self.call_counts.get(sequence.id, 0)
        length = len(sequence.elements)
        if call_count >= length and sequence.ending not in (REPEAT_LAST, CYCLE):
            count = "1 element, and it is" if length == 1 else f"{length} elements, and all are"
            raise UnansweredError(f"the $sequence of {name} has {count} used up; add one, or '$then'")
        self.call_counts[sequence.id] = call_count + 1
        index = call_count % length if sequence.ending == CYCLE else min(call_count, length - 1)
        self.used_branches.add((sequence.id, index))
        return index

    def _select_rule(self, name: str, match: MatchAnswer, arguments: object, resolve: Resolve) -> tuple[str, Answer]:
        for index, rule in enumerate(match.rules):
            if _is_match(rule, arguments, resolve):
                self.used_branches.add((match.id, index))
                return f"$match[{index}]", rule.answer
        if match.default is None:
            fitting = f"no $match rule of {name} fits {format_value(arguments, 120)}"
            raise UnansweredError(f"{fitting}; add a rule, or '$default' for all other arguments")
        self.used_branches.add((match.id, -1))
        return "$default", match.default

    def find_unused(self, mocks: MockSet, called: frozenset[str], unknown: frozenset[str]) -> Iterator[str]:
        """Each mock, rule and sequence element that no call used, as a sentence. `called` are the mocks' own names,
        `unknown` those of calls that were refused because nothing declares them.
        """
        for name, answer in mocks.answers.items():
            if name in mocks.shared:
                continue
            if name in called:
                yield from self._find_unused_branches(answer, name)
            elif name in unknown:
                yield f"{name} is mocked, and was refused: the model was told of no such function, so declare it"
            else:
                yield f"{name} is mocked, and was never called"

    def _find_unused_branches(self, answer: Answer, place: str) -> Iterator[str]:
        if isinstance(answer, DelayedAnswer):
            yield from self._find_unused_branches(answer.answer, place)
        elif isinstance(answer, SequenceAnswer):
            for index, element in enumerate(answer.elements):
                here = f"{place}.$sequence[{index}]"
                if (answer.id, index) in self.used_branches:
                    yield from self._find_unused_branches(element, here)
                else:
                    yield f"{here} was never reached"
        elif isinstance(answer, MatchAnswer):
            for index, rule in enumerate(answer.rules):
                here = f"{place}.$match[{index}]"
                if (answer.id, index) in self.used_branches:
                    yield from self._find_unused_branches(rule.answer, here)
                else:
                    yield f"{here} (when {format_value(rule.when, 120)}) answered no call"
            if answer.default is not None and (answer.id, -1) in self.used_branches:
                yield from self._find_unused_branches(answer.default, f"{place}.$default")


_LABELS: dict[type, str] = {FailureAnswer: "$error", CallAnswer: "$call", RealAnswer: "$real"}


def _is_match(rule: MatchRule, arguments: object, resolve: Resolve) -> bool:
    matcher = rule.matcher
    if matcher.has_templates:
        try:
            matcher = matcher.bind(resolve)
        except TemplateError:
            return False  # e.g. the id of a ticket that no call has created yet
    return bool(matcher.is_match(arguments))
