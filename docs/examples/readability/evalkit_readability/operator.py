"""The operator `$short_sentences: 8`: a text whose sentences have at most eight words."""

from __future__ import annotations

from evalkit.api import Matcher, Operand, Operator
from evalkit_readability.sentences import count_words, find_longest


class ShortSentences(Matcher, frozen=True):
    """A text in short sentences."""

    max_words: int

    def evaluate(self, actual: object) -> bool:
        return isinstance(actual, str) and count_words(find_longest(actual)) <= self.max_words

    def describe_fully(self) -> str:
        return f"a text in sentences of at most {self.max_words} words"

    def to_data(self) -> dict[str, int]:
        return {"$short_sentences": self.max_words}


def build(operand: Operand) -> Matcher:
    """Build the operator; a wrong operand is a problem of the file."""
    if not isinstance(operand.value, int) or operand.value < 1:
        return operand.refuse("a number of words from 1 on")
    return ShortSentences(operand.value)


OPERATOR = Operator(
    name="$short_sentences",
    doc="a text whose sentences have at most so many words",
    example={"$short_sentences": 8},
    build=build,
    propose=lambda operand: ("Yes.",),  # what `evalkit smoke` tries
)
