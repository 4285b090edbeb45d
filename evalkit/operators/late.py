"""Late values: what is decided after a run, by asking somebody, once all holds that needs nobody.

A late operator accepts any value until an answer is known. While a transcript is judged, each feature with late
operators or keys has its `LateValues`: they note what was accepted, and find the answers that the transcript holds. So
judging stays a function of the transcript.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, ClassVar, Self

from msgspec import Struct, field

from evalkit.errors import KeyPath
from evalkit.jsonvalue import is_list, is_mapping
from evalkit.lazy import LazyModule
from evalkit.records.verdict import CheckResult

if TYPE_CHECKING:
    from evalkit.operators import base, lists, logic, values
    from evalkit.operators.base import Matcher
else:
    lists = LazyModule("evalkit.operators.lists")
    logic = LazyModule("evalkit.operators.logic")
    base = LazyModule("evalkit.operators.base")
    values = LazyModule("evalkit.operators.values")


class LateValues:
    """The late values of one feature in one judgement. `answers` are those that the transcript holds.

    `left_open` says why nobody is asked yet, where that is so: without it, a value without an answer is an error.
    """

    feature: ClassVar[str]

    def __init__(self, answers: Any, left_open: str = "") -> None:
        self.answers = answers
        self.left_open = left_open

    @classmethod
    def get_current(cls) -> Self | None:
        """Return those of the judgement that is under way; None where nothing is judged."""
        judging = _judging.get()
        if judging is None:
            return None
        values = judging.late.get(cls.feature)
        if not isinstance(values, cls):
            left_open = _left_open.get()
            values = cls(judging.features.get(cls.feature), "" if left_open is None else left_open.reason)
            judging.late[cls.feature] = values
        return values

    def add(self, matcher: Matcher, value: object, path: KeyPath, subject: str) -> None:
        """Note that a late matcher accepted `value`. `subject` is what messages call the place."""
        raise NotImplementedError

    def list_open(self) -> Iterable[Any]:
        """Return what has no answer: `Feature.grade` gets it, to ask."""
        raise NotImplementedError

    def report(self, mode: str) -> Iterable[CheckResult]:
        """Return the results for the values that were noted."""
        raise NotImplementedError


class Judging:
    """A judgement under way, by one expectation. `features` is what features recorded of the run."""

    __slots__ = ("_token", "features", "late", "problems")

    def __init__(self, features: Mapping[str, Any]) -> None:
        self.features = features
        self.late: dict[str, LateValues] = {}
        self.problems: dict[str, None] = {}  # why a value could not be compared

    def __enter__(self) -> Self:
        self._token = _judging.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        _judging.reset(self._token)
        left_open = _left_open.get()
        if left_open is not None:
            for name, values in self.late.items():
                if found := list(values.list_open()):
                    left_open.found.setdefault(name, []).extend(found)


NOT_ASKED = "only a run for which all else holds is"  # why nobody is asked in the first step of judging


class _LeftOpen(Struct):
    reason: str
    found: dict[str, list[Any]] = field(default_factory=dict)  # by feature


_judging: ContextVar[Judging | None] = ContextVar("evalkit_judging", default=None)
_left_open: ContextVar[_LeftOpen | None] = ContextVar("evalkit_left_open", default=None)


@contextmanager
def leave_open(reason: str) -> Iterator[dict[str, list[Any]]]:
    """Judge without asking anybody: yield what stays open in what is judged meanwhile, by the feature that may ask.

    `reason` says why nobody is asked.
    """
    left_open = _LeftOpen(reason)
    token = _left_open.set(left_open)
    try:
        yield left_open.found
    finally:
        _left_open.reset(token)


def report_problem(message: str) -> bool:
    """Record why a value could not be compared: what is being judged is an error. False where nothing is judged."""
    judging = _judging.get()
    if judging is not None:
        judging.problems[message] = None
    return judging is not None


def quote_value(value: object) -> str:
    """Write the value of a template as JSON: what an agent was given or wrote can only be quoted text in a question."""
    return json.dumps(value, ensure_ascii=False, default=repr)


def note_late_values(matcher: Matcher, actual: object, path: KeyPath, subject: str) -> None:
    """Note which late matchers decided that `actual` matches."""
    judging = _judging.get()
    if judging is not None and judging.late:  # a late matcher was asked
        for late, value, place in _find_late(matcher, actual, path):
            judging.late[late.late_feature].add(late, value, place, subject)


def _find_late(matcher: Matcher, actual: object, path: KeyPath) -> Iterator[tuple[Matcher, object, KeyPath]]:
    parts: Iterable[tuple[Matcher, object, KeyPath]] = ()
    if matcher.late_feature:
        yield matcher, actual, path
    elif isinstance(matcher, values.MappingMatcher) and is_mapping(actual):
        parts = [(item, actual[key], (*path, key)) for key, item in matcher.items if key in actual]
    elif isinstance(matcher, values.ListMatcher) and is_list(actual):
        parts = [(item, actual[place], (*path, place)) for place, item in enumerate(matcher.items)]
    elif isinstance(matcher, lists.Each) and is_list(actual):
        parts = [(matcher.inner, item, (*path, place)) for place, item in enumerate(actual)]
    elif isinstance(matcher, logic.AllOf):
        parts = [(item, actual, path) for item in matcher.items]
    elif isinstance(matcher, logic.AnyOf):
        parts = [(item, actual, path) for item in matcher.items if item.is_match(actual)][:1]
    elif isinstance(matcher, base.Wrapper):  # of the same value: $default, $partial; under others none can stand
        parts = [(matcher.inner, actual, path)]
    for part, value, place in parts:
        yield from _find_late(part, value, place)
