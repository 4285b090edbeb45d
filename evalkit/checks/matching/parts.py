"""The plan as a machine that consumes calls one by one: each part knows its states and the steps between them.

A state says what a part has consumed so far, as a small hashable value. A step consumes one call and tells which part
took it, the state after it, whether it commits (to an alternative or to a turn, so that waiting might have been
wiser), and whether it fills a place that must be filled.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from msgspec import Struct, field

from evalkit.checks.matching.cover import BipartiteMatching, list_bits, match_calls
from evalkit.checks.matching.table import FitTable


class Step(NamedTuple):
    taker: LeafPart | Bag
    state: Any
    commits: bool
    needed: bool


class Rules(Struct):
    """What holds for one search. `least` and `most` are numbers of calls by leaf."""

    table: FitTable
    minimums: Sequence[int]
    maximums: Sequence[int]
    lenient: bool = False  # a call without a turn may stand in any turn
    relaxed: bool = False  # for explanations: every place may stay empty, and turns don't matter


class Part(Protocol):
    """`start` is the state before any call."""

    start: Any
    leaves: tuple[int, ...]

    def is_done(self, state: Any) -> bool: ...

    def find_steps(self, state: Any, call: int) -> Iterator[Step]: ...


class LeafPart(Struct, eq=False):
    """A leaf. State: how many calls it has."""

    leaf: int
    rules: Rules
    start: int = 0
    leaves: tuple[int, ...] = ()
    _name: str = ""
    _unlimited: bool = False

    def __post_init__(self) -> None:
        self.leaves = (self.leaf,)
        self._name = self.rules.table.leaves[self.leaf].name
        self._unlimited = self.rules.maximums[self.leaf] >= len(self.rules.table.actual)

    def is_done(self, state: int) -> bool:
        return self.rules.relaxed or state >= self.rules.minimums[self.leaf]

    def find_steps(self, state: int, call: int) -> Iterator[Step]:
        table = self.rules.table
        if state >= self.rules.maximums[self.leaf] or table.actual[call].name != self._name:
            return
        if table.is_fit(self.leaf, call):
            minimum = self.rules.minimums[self.leaf]
            # Beyond what is needed, states differ only where there is a limit to reach.
            after = min(state + 1, minimum) if self._unlimited else state + 1
            yield Step(self, after, False, state < minimum)


class Bag(Struct, eq=False):
    """Leaves in any order. State: the calls that it has, as bits; which leaf takes which call is decided last."""

    leaves: tuple[int, ...]
    rules: Rules
    start: int = 0
    _covers: dict[int, BipartiteMatching] = field(default_factory=dict)
    _done: dict[int, bool] = field(default_factory=dict)
    _names: frozenset[str] = frozenset()
    _needed: int = 0

    def __post_init__(self) -> None:
        self._names = frozenset(self.rules.table.leaves[leaf].name for leaf in self.leaves)
        self._needed = sum(self.rules.minimums[leaf] for leaf in self.leaves)
        self._covers[0] = BipartiteMatching(self.rules.table, self.leaves, self.rules.maximums)

    def is_done(self, state: int) -> bool:
        if self.rules.relaxed or not self._needed:
            return True
        if state.bit_count() < self._needed:
            return False
        is_filled = self._done.get(state)
        if is_filled is None:
            loads = self.match_calls(state).load
            is_filled = self._done[state] = all(len(loads[leaf]) >= self.rules.minimums[leaf] for leaf in self.leaves)
        return is_filled

    def find_steps(self, state: int, call: int) -> Iterator[Step]:
        if self.rules.table.actual[call].name not in self._names:
            return
        after = state | 1 << call
        if after not in self._covers:
            grown = self._covers[state].copy()
            if not grown.add(call):
                return
            self._covers[after] = grown
        yield Step(self, after, False, state.bit_count() < self._needed)

    def match_calls(self, state: int) -> BipartiteMatching:
        """Which leaf takes which of the calls; places that must be filled come first."""
        return match_calls(self.rules.table, self.leaves, self.rules.minimums, self.rules.maximums, list_bits(state))


class Chain(Struct, eq=False):
    """Parts one after the other. State: which part is at work, and its state."""

    parts: tuple[Part, ...]
    start: tuple[int, Any] = (0, None)
    leaves: tuple[int, ...] = ()
    _rest_done: list[bool] = field(default_factory=list)  # by part: whether all parts after it may stay empty

    def __post_init__(self) -> None:
        self.start = (0, self.parts[0].start)
        self.leaves = tuple(leaf for part in self.parts for leaf in part.leaves)
        self._rest_done = [True] * len(self.parts)
        for i in reversed(range(len(self.parts) - 1)):
            following = self.parts[i + 1]
            self._rest_done[i] = self._rest_done[i + 1] and following.is_done(following.start)

    def is_done(self, state: tuple[int, Any]) -> bool:
        i, inner = state
        return self._rest_done[i] and self.parts[i].is_done(inner)

    def find_steps(self, state: tuple[int, Any], call: int) -> Iterator[Step]:
        i, inner = state
        while True:
            part = self.parts[i]
            for step in part.find_steps(inner, call):
                yield Step(step.taker, (i, step.state), step.commits, step.needed)
            i += 1
            if i == len(self.parts) or not part.is_done(inner):
                return
            inner = self.parts[i].start


class Shuffle(Struct, eq=False):
    """Parts whose calls interleave. State: theirs."""

    parts: tuple[Part, ...]
    start: tuple[Any, ...] = ()
    leaves: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        self.start = tuple(part.start for part in self.parts)
        self.leaves = tuple(leaf for part in self.parts for leaf in part.leaves)

    def is_done(self, state: tuple[Any, ...]) -> bool:
        return all(part.is_done(inner) for part, inner in zip(self.parts, state, strict=True))

    def find_steps(self, state: tuple[Any, ...], call: int) -> Iterator[Step]:
        for i, part in enumerate(self.parts):
            for step in part.find_steps(state[i], call):
                yield Step(step.taker, (*state[:i], step.state, *state[i + 1 :]), step.commits, step.needed)


class Choice(Struct, eq=False):
    """One of several parts. State: None while undecided, then which and its state."""

    parts: tuple[Part, ...]
    start: None = None
    leaves: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        self.leaves = tuple(leaf for part in self.parts for leaf in part.leaves)

    def is_done(self, state: tuple[int, Any] | None) -> bool:
        if state is None:
            return any(part.is_done(part.start) for part in self.parts)
        return self.parts[state[0]].is_done(state[1])

    def find_steps(self, state: tuple[int, Any] | None, call: int) -> Iterator[Step]:
        if state is None:
            for i, part in enumerate(self.parts):
                for step in part.find_steps(part.start, call):
                    yield Step(step.taker, (i, step.state), True, step.needed)
        else:
            i, inner = state
            for step in self.parts[i].find_steps(inner, call):
                yield Step(step.taker, (i, step.state), step.commits, step.needed)


class ParallelPart(Struct, eq=False):
    """A part whose calls share a model turn. State: None before the first call, then the turn and the part's state."""

    part: Part
    rules: Rules
    start: None = None
    leaves: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        self.leaves = self.part.leaves

    def is_done(self, state: tuple[int | None, Any] | None) -> bool:
        return self.part.is_done(self.part.start if state is None else state[1])

    def find_steps(self, state: tuple[int | None, Any] | None, call: int) -> Iterator[Step]:
        here = self._get_turn(call)
        turn, inner = (here, self.part.start) if state is None else state
        if turn is None:
            turn = here
        elif here is not None and here != turn:
            return
        commits = state is None or turn != state[0]
        for step in self.part.find_steps(inner, call):
            yield Step(step.taker, (turn, step.state), commits or step.commits, step.needed)

    def _get_turn(self, call: int) -> int | None:
        if self.rules.relaxed:
            return None
        turn = self.rules.table.actual[call].turn
        if turn is None and not self.rules.lenient:
            return -1 - call  # without evidence a call shares its turn with no other
        return turn
