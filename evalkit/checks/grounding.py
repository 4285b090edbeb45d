"""`grounded`: whether a value in a call's arguments can be traced to what the agent knew when it made the call.

What it knew: the case's input (of later user turns nothing), and the results, errors included, of the calls made
before; calls of one model turn do not know each other's results. Mocks in the input are no knowledge.

A value is traceable if

1. it is null, a boolean, or empty: those state no fact;
2. the function's declaration offers it (`enum`, `const`, `default`);
3. it is a number that stands there, as a number or written in a text (``1,234.50``, ``1 234,50``, which is one number);
4. it is a text that stands there, as whole words, case, Unicode form and whitespace aside;
5. it is a date or time that stands there in another notation (``2025-12-31``, ``31.12.2025``, ``December 31, 2025``);
6. it is an identifier of letters and digits (five or more) that stands there with or without spaces and hyphens, or one
   of seven digits or more, as a telephone number is: brackets don't matter then either;
7. it is a text composed of traceable parts: dates, times, numbers, and the words between them, where a word may itself
   be joined by ``- _ / : #`` from parts of three or more characters;
8. it is a list or mapping of traceable values.

All of it is exact and deterministic. Translations, synonyms, number words and arithmetic are not traced.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from functools import cached_property
from typing import Any, NamedTuple

from evalkit.checks.notations import Found, dates_in, numbers_in, times_in
from evalkit.checks.reading import Path
from evalkit.model.transcript import FunctionCall
from evalkit.operators.equality import ARRAY, BOOLEAN, NUMBER, OBJECT, STRING, json_equal, kind
from evalkit.operators.phrases import find_words, fold_text
from evalkit.operators.shown import shown

_MOCKS = ("mock_function_responses", "mock_responses")
_AROUND = " \t.,;:!?()[]{}<>\"'`*«»“”„‘’…"
_BETWEEN = re.compile(r"[\s;|]+|,(?!\d)|(?<!\d),")
_AMOUNT = re.compile(r"[.,]\d+$")  # groups of digits may be a telephone number's, unless a fraction follows
_JOINED = re.compile(r"[-_/:#]+")
_MIDNIGHT = (0, 0, 0)
_PART = 3  # characters; shorter parts of a joined word stand in any text by chance
_IDENTIFIER = 5
_DIGITS = 7  # of an identifier without letters, a telephone number above all
_TELEPHONE = re.compile(r"\+?[0-9][0-9 ()-]*")
_LONGEST = 64  # what is longer is prose


class Source:
    """One thing that the agent was told, indexed when first asked: its texts, numbers, dates and times."""

    def __init__(self, value: Any) -> None:
        self._numbers: set[object] = set()
        # Folded texts hold no line break, so no match can reach from one into the next.
        self.text = "\n".join(self._gather(value))

    def _gather(self, value: Any) -> Iterator[str]:
        pending, seen = [value], set()
        while pending:
            item = pending.pop()
            of_kind = kind(item)
            if of_kind == STRING:
                yield fold_text(item)
            elif of_kind == NUMBER:
                self._numbers.update(_decimal(item))
            elif of_kind in (OBJECT, ARRAY) and id(item) not in seen:
                seen.add(id(item))
                pending.extend(item.values() if of_kind == OBJECT else item)
                if of_kind == OBJECT:
                    yield from (fold_text(key) for key in item if kind(key) == STRING)

    @cached_property
    def numbers(self) -> set[object]:
        return self._numbers.union(*(found.readings | found.pieces for found in numbers_in(self.text)))

    @cached_property
    def dates(self) -> set[object]:
        return set().union(*(found.readings for found in dates_in(self.text)))

    @cached_property
    def times(self) -> set[object]:
        return set().union(*(found.readings for found in times_in(self.text)))


def _decimal(number: float) -> Iterator[Decimal]:
    if isinstance(number, int):
        yield Decimal(number)
    elif number - number == 0:
        yield Decimal(repr(float(number)))


class Grounding:
    """What the agent knew before each call of a run."""

    def __init__(self, given: Any, calls: Sequence[FunctionCall]) -> None:
        self._calls = calls
        self._results: dict[int, Source] = {}
        told = {key: value for key, value in given.items() if key not in _MOCKS} if isinstance(given, dict) else given
        turns = told.pop("turns", None) if isinstance(given, dict) else None
        self._input = Source(told)
        self._turns = [Source(_said(turn)) for turn in turns] if isinstance(turns, list) else []

    def sources(self, call: FunctionCall) -> list[Source]:
        """What was known before `call`: the input so far, and the results of earlier calls."""
        known = [self._input, *self._turns[: call.user_turn + 1]]
        for earlier in self._calls:
            if earlier.index < call.index and (call.turn is None or earlier.turn != call.turn):
                if earlier.index not in self._results:
                    self._results[earlier.index] = Source(earlier.result)
                known.append(self._results[earlier.index])
        return known

    def untraced(self, call: FunctionCall, value: Any, offered: Sequence[Any] = ()) -> list[tuple[Path, Any]]:
        """The parts of `value` that can't be traced, each with its path."""
        tracer = _Tracer(self.sources(call), offered)
        return [(leaf.path(), leaf.value) for leaf in _leaves(value) if not tracer.traces(leaf.value)]


def _said(turn: Any) -> Any:
    return turn.get("user") if isinstance(turn, dict) else turn


class _Leaf(NamedTuple):
    """A part of a value. The path is kept as a chain: paths of deep values would take as long to copy as to walk."""

    value: Any
    step: str | int = 0
    parent: _Leaf | None = None

    def path(self) -> Path:
        steps: list[str | int] = []
        part = self
        while part.parent is not None:
            steps.append(part.step)
            part = part.parent
        return tuple(reversed(steps))


def _leaves(value: Any) -> Iterator[_Leaf]:
    """Every scalar in `value`, in reading order. A container inside itself is visited once."""
    pending, seen = [_Leaf(value)], set()
    while pending:
        part = pending.pop()
        of_kind = kind(part.value)
        if of_kind not in (OBJECT, ARRAY):
            yield part
        elif id(part.value) not in seen:
            seen.add(id(part.value))
            steps = part.value.items() if of_kind == OBJECT else enumerate(part.value)
            inside = [_Leaf(item, step if isinstance(step, int) else shown_key(step), part) for step, item in steps]
            pending.extend(reversed(inside))


def shown_key(key: Any) -> str:
    """A key as a step of a path, whatever it is."""
    return str(key) if kind(key) == STRING else shown(key)


class _Tracer:
    """The rules of the module's docstring, over the sources of one call."""

    def __init__(self, sources: Sequence[Source], offered: Sequence[Any]) -> None:
        self.sources = sources
        self.offered = offered

    def traces(self, value: Any) -> bool:
        of_kind = kind(value)
        if value is None or of_kind == BOOLEAN:
            return True
        if any(json_equal(value, offer) for offer in self.offered):
            return True
        if of_kind == NUMBER:
            return self._known(lambda source: source.numbers, set(_decimal(value)))
        return of_kind == STRING and self._text(fold_text(value))

    def _known(self, index: Callable[[Source], set[object]], readings: set[Any] | frozenset[object]) -> bool:
        return any(not readings.isdisjoint(index(source)) for source in self.sources)

    def _stands(self, text: str) -> bool:
        return any(find_words(source.text, text) >= 0 for source in self.sources)

    def _text(self, text: str) -> bool:
        return not text or self._stands(text) or self._identifier(text) or self._composed(text)

    def _composed(self, text: str) -> bool:
        dates = dates_in(text)
        if not all(self._known(lambda source: source.dates, found.readings) for found in dates):
            return False
        rest = _without(text, dates)
        times = times_in(rest)
        if not all(self._time(found, bool(dates)) for found in times):
            return False
        rest = _without(rest, times)
        spaced = [found for found in numbers_in(rest) if " " in rest[slice(*found.span)]]  # 1 234,50
        known = [found for found in spaced if self._known(lambda source: source.numbers, found.readings)]
        if any(_AMOUNT.search(rest[slice(*found.span)]) for found in spaced if found not in known):
            return False
        return all(self._word(word.strip(_AROUND)) for word in _BETWEEN.split(_without(rest, known)))

    def _time(self, found: Found, with_date: bool) -> bool:
        """A time stands there; midnight beside a date says no more than the date."""
        return (with_date and _MIDNIGHT in found.readings) or self._known(lambda source: source.times, found.readings)

    def _word(self, word: str) -> bool:
        if not any(character.isalnum() for character in word) or self._stands(word):
            return True
        numbers = numbers_in(word)
        if len(numbers) == 1 and self._number(word, numbers[0]):
            return True
        if self._identifier(word):
            return True
        parts = _JOINED.split(word)
        return len(parts) > 1 and all(len(part) >= _PART and self._word(part) for part in parts)

    def _number(self, word: str, number: Found) -> bool:
        """A number with nothing but signs of currency or per cent around it. Several are a word that is joined."""
        bare = not any(character.isalnum() for character in _without(word, [number]))
        return bare and self._known(lambda source: source.numbers, number.readings)

    def _identifier(self, word: str) -> bool:
        compact = re.sub("[ -]", "", word)
        if _TELEPHONE.fullmatch(word):
            compact, between = re.sub("[^0-9]", "", word), "[ ()-]{0,2}"
            usual = len(compact) >= _DIGITS
        else:
            between = "[ -]?"
            usual = len(compact) >= _IDENTIFIER and compact.isalnum() and not (compact.isalpha() or compact.isdigit())
        if not usual or len(compact) > _LONGEST:
            return False
        spaced = re.compile(r"(?<!\w)" + between.join(map(re.escape, compact)) + r"(?!\w)")
        return any(spaced.search(source.text) for source in self.sources)


def _without(text: str, found: list[Found]) -> str:
    """`text` with what was found cut out."""
    for start, end in [each.span for each in reversed(found)]:
        text = f"{text[:start]} {text[end:]}"
    return text
