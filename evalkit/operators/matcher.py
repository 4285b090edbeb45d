"""What every compiled expectation can do, and what it says where a value does not meet it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from evalkit.errors import format_path
from evalkit.model.template import Reference
from evalkit.operators.equality import KINDS
from evalkit.operators.shown import cut, format_value

WRONG, MISSING, UNEXPECTED = "wrong", "missing", "unexpected"
MAX_DIFFERENCES = 100  # of one value; more help nobody, and an enormous list has millions

KeyPath = tuple[str | int, ...]
Resolve = Callable[[Reference], Any]


class Mismatch(Struct, frozen=True):
    """One place at which a value is not what was expected. `str()` gives the whole line, path first.

    `code` is `wrong` (a value differs), `missing` (nothing there) or `unexpected` (something there that should not
    be). `message` names the expected and the actual value, without the path. `path` counts the actual list's
    items, but for a missing item, which only the expected list has.
    """

    path: KeyPath
    code: str
    message: str
    expected: Any = None
    actual: Any = None

    def __str__(self) -> str:
        return f"{format_path(self.path)}: {self.message}" if self.path else self.message


class Undecided(Exception):  # noqa: N818 - it says what happened; nobody did anything wrong
    """A value could be judged neither way: a pattern ran out of time, a user's operator raised.

    That is a mismatch with its own reason, under `$not` as well.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Matcher(Struct, frozen=True):
    """An expected value, compiled. Subclasses are frozen dataclasses: picklable, comparable, safe to share.

    `matches`, `explain` and `equals` never raise, whatever the actual value is.
    """

    is_composite = False  # whether `differences` asks other matchers, which then give their own reasons

    @property
    def absence(self) -> bool | None:
        """What it says of an argument that is not sent: accepts it, refuses it, or does not speak of it (None)."""
        return None

    @property
    def accepts_absence(self) -> bool:
        """Whether the argument may be missing."""
        return self.absence is True

    @property
    def has_templates(self) -> bool:
        """Whether `bind` is needed before judging."""
        return False

    @property
    def kinds(self) -> frozenset[str]:
        """The JSON types that a matching value can have; more than that where it is not known."""
        return KINDS

    @abstractmethod
    def evaluate(self, actual: Any) -> bool:
        """Whether `actual` is as expected; raises Undecided where that can't be said."""

    @abstractmethod
    def describe_fully(self) -> str:
        """`describe` at full length."""

    @abstractmethod
    def to_data(self) -> Any:
        """What it wanted, as JSON data in the form of a case file."""

    def describe(self) -> str:
        """What it wanted, for people: ``a number > 5``."""
        return cut(self.describe_fully())

    def bind(self, resolve: Resolve) -> Matcher:
        """The same with every template replaced by what `resolve` gives for it. TemplateError passes through."""
        return self

    def is_match(self, actual: Any) -> bool:
        """Whether `actual` is as expected."""
        try:
            return self.evaluate(actual)
        except Exception:  # Undecided, or an object that raises when it is looked at
            return False

    def is_equal(self, actual: Any) -> bool:
        """Whether `actual` is as expected even without the tolerance of `arguments_contain`."""
        return self.is_match(actual)

    def explain(self, actual: Any, path: KeyPath = ()) -> list[Mismatch]:
        """Every way in which `actual` differs, each with its path; empty if and only if it matches.

        At most `MAX_DIFFERENCES`, and then one more that says so.
        """
        try:
            if self.evaluate(actual):
                return []
            differences = self.find_differences(actual, path)
        except Undecided as undecided:
            differences = self.find_differences(actual, path) if self.is_composite else []
            differences = differences or [Mismatch(path, WRONG, undecided.reason, self.to_data(), actual)]
        except Exception as error:
            reason = f"cannot be judged: {type(error).__name__} on looking at the value"
            differences = [Mismatch(path, WRONG, reason, self.to_data(), actual)]
        if len(differences) > MAX_DIFFERENCES:
            last = Mismatch(path, WRONG, f"differs in more than {MAX_DIFFERENCES} places", self.to_data(), actual)
            return [*differences[:MAX_DIFFERENCES], last]
        return differences or [self.build_mismatch(actual, path)]

    def find_differences(self, actual: Any, path: KeyPath) -> list[Mismatch]:
        """As `explain`, for a value that is known not to match."""
        return [self.build_mismatch(actual, path)]

    def build_mismatch(self, actual: Any, path: KeyPath) -> Mismatch:
        """One `wrong` for the whole value."""
        return Mismatch(path, WRONG, self.describe_mismatch(actual), self.to_data(), actual)

    def describe_mismatch(self, actual: Any) -> str:
        """The message for a value that does not match: ``expected …, got …``."""
        return f"expected {self.describe()}, got {format_value(actual)}{self.build_hint(actual)}"

    def build_hint(self, actual: Any) -> str:
        """What the two values in the message don't show by themselves, in brackets; "" if nothing."""
        from evalkit.operators.hints import build_kind_hint

        return build_kind_hint(actual, self.kinds)
