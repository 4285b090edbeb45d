"""Matchers of single values: any value, the same JSON value, words in a text, and templates that have no value yet."""

from __future__ import annotations

from itertools import islice
from typing import Any

from evalkit.model.template import Template, render_templates
from evalkit.operators.equality import STRING, get_kind, is_json_equal
from evalkit.operators.matcher import MAX_DIFFERENCES, KeyPath, Matcher, Mismatch, Resolve, Undecided
from evalkit.operators.phrases import find_words, fold_text
from evalkit.operators.shown import WINDOW_SIZE, format_value, format_window


class AnyValue(Matcher, frozen=True):
    """Present, with any value, null included."""

    @property
    def absence(self) -> bool | None:
        return False

    def evaluate(self, actual: Any) -> bool:
        return True

    def describe_fully(self) -> str:
        return "any value"

    def to_data(self) -> Any:
        return {"$any": True}


class Equal(Matcher, frozen=True, eq=False):
    """The same JSON value. `has_nan`: somewhere in it, so that `==` can't be trusted to refuse."""

    value: Any
    has_nan: bool = False

    def __eq__(self, value: object) -> bool:
        return type(value) is Equal and is_json_equal(self.value, value.value)

    __hash__ = None  # type: ignore[assignment]  # the value may be a mapping

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset({get_kind(self.value)})

    def evaluate(self, actual: Any) -> bool:
        # `==` is several times faster, and what it calls different is different, but for NaN. It can't accept:
        # it takes true for 1, and an object may call itself equal to anything.
        if not self.has_nan:
            try:
                if self.value != actual:
                    return False
            except Exception:
                return is_json_equal(self.value, actual)
        return is_json_equal(self.value, actual)

    is_match = evaluate

    def find_differences(self, actual: Any, path: KeyPath) -> list[Mismatch]:
        from evalkit.operators.difference import find_value_differences

        return list(islice(find_value_differences(self.value, actual, path), MAX_DIFFERENCES + 1))

    def describe_fully(self) -> str:
        return format_value(self.value)

    def to_data(self) -> Any:
        return self.value


class Words(Matcher, frozen=True):
    """A text that contains `text`, by the rule of `arguments_contain` (`evalkit.operators.phrases`)."""

    text: str
    folded: str

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset({STRING})

    def evaluate(self, actual: Any) -> bool:
        return get_kind(actual) == STRING and (actual == self.text or find_words(fold_text(actual), self.folded) >= 0)

    def is_equal(self, actual: Any) -> bool:
        return is_json_equal(self.text, actual)

    def describe_fully(self) -> str:
        return f"a text that contains {format_value(self.text)}"

    def to_data(self) -> Any:
        return self.text

    def describe_mismatch(self, actual: Any) -> str:
        if get_kind(actual) != STRING or len(actual) <= 4 * WINDOW_SIZE:
            return f"expected {self.describe()}, got {format_value(actual)}{self.build_hint(actual)}"
        folded = fold_text(actual)
        at, length = _find_nearest_place(folded, self.folded)
        # Folding leaves most texts as long as they are; then the place is shown as it was written.
        source = actual if len(folded) == len(actual) else folded
        return f"expected {self.describe()}, got {format_window(source, at, at + length)}{self.build_hint(actual)}"

    def build_hint(self, actual: Any) -> str:
        if get_kind(actual) != STRING:
            from evalkit.operators.hints import build_value_hint

            return build_value_hint(self.text, actual)
        return " (it is there only inside a longer word)" if self.folded in fold_text(actual) else ""


def _find_nearest_place(text: str, phrase: str) -> tuple[int, int]:
    """Where the longest beginning of `phrase` stands in `text`, and its length."""
    low, high = 0, len(phrase)
    while low < high:  # a beginning is found wherever a longer one is, so halving is enough
        middle = (low + high + 1) // 2
        if phrase[:middle] in text:
            low = middle
        else:
            high = middle - 1
    return text.find(phrase[:low]), low


class Pending(Matcher, frozen=True):
    """A string with templates in it. Nothing matches before `bind` has put a value in its place."""

    template: Template
    mode: str

    @property
    def has_templates(self) -> bool:
        return True

    def evaluate(self, actual: Any) -> bool:
        raise Undecided(f"the template {format_value(str(self.template))} has no value yet")

    def describe_fully(self) -> str:
        return f"the value of {format_value(str(self.template))}"

    def to_data(self) -> Any:
        return str(self.template)

    def bind(self, resolve: Resolve) -> Matcher:
        from evalkit.operators.compile import compile_rendered

        return compile_rendered(render_templates(self.template, resolve), self.mode)
