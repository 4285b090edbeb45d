"""Exact search for an assignment that satisfies the plan, and the best one that does not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from operator import and_
from typing import Any, NamedTuple, Protocol

from msgspec import Struct

from evalkit.bounds import explain_bound, get_bounds
from evalkit.checks.matching.plan import (
    ActualCall,
    AnyOrder,
    BipartiteMatching,
    FitTable,
    InOrder,
    Leaf,
    Node,
    OneOf,
    Position,
    SearchTooLargeError,
    list_bits,
    list_children,
    match_calls,
)

_WIDTH = 12  # numbers in a state that so many states may have; of wider ones there are fewer, for the memory's sake
_PATIENCE = 2_000  # states after which it is worth asking whether the plan could be satisfied in any order at all
MAX_WIDTH = 256  # states kept per call when looking for the best explanation


class Step(NamedTuple):
    """A step of a part that consumes one call.

    `taker` is the part that took it, `state` the state after it. It `commits` to an alternative or to a turn, so that
    waiting might have been better. It is `needed` if it fills a place that must be filled.
    """

    taker: LeafPart | Bag
    state: Any
    commits: bool
    needed: bool


class Rules(Struct):
    """The rules of one search. `minimums` and `maximums` are numbers of calls by leaf."""

    table: FitTable
    minimums: Sequence[int]
    maximums: Sequence[int]
    lenient: bool = False  # a call without a turn may stand in any turn
    relaxed: bool = False  # for explanations: every place may stay empty, and turns don't matter


class PlanPart(Protocol):
    """A part of the plan as a machine that consumes calls one by one.

    A state says what the part has consumed so far, as a small hashable value; `start` is the state before any call.
    """

    start: Any
    leaves: tuple[int, ...]

    def is_done(self, state: Any) -> bool:
        """Return whether the part may end in this state."""

    def find_steps(self, state: Any, call: int) -> Iterator[Step]:
        """Iterate over the ways to consume the call."""


class LeafPart:
    """A leaf. State: the number of its calls."""

    start = 0

    def __init__(self, leaf: int, rules: Rules) -> None:
        self.leaf = leaf
        self.leaves: tuple[int, ...] = (leaf,)
        self.rules = rules
        self._name = rules.table.leaves[leaf].name
        self._unlimited = rules.maximums[leaf] >= len(rules.table.actual)

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


class Bag:
    """Leaves in any order. State: the calls that it has, as bits; the leaf that takes each call is decided last."""

    start = 0

    def __init__(self, leaves: tuple[int, ...], rules: Rules) -> None:
        self.leaves = leaves
        self.rules = rules
        self._names = frozenset(rules.table.leaves[leaf].name for leaf in leaves)
        self._needed = sum(rules.minimums[leaf] for leaf in leaves)
        self._matchings = {0: BipartiteMatching(rules.table, leaves, rules.maximums)}
        self._done: dict[int, bool] = {}

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
        if after not in self._matchings:
            grown = self._matchings[state].copy()
            if not grown.add(call):
                return
            self._matchings[after] = grown
        yield Step(self, after, False, state.bit_count() < self._needed)

    def match_calls(self, state: int) -> BipartiteMatching:
        """Decide which leaf takes which of the calls; places that must be filled come first."""
        return match_calls(self.rules.table, self.leaves, self.rules.minimums, self.rules.maximums, list_bits(state))


class Chain:
    """Parts one after the other. State: the number of the part at work, and its state."""

    def __init__(self, parts: tuple[PlanPart, ...]) -> None:
        self.parts = parts
        self.start = (0, parts[0].start)
        self.leaves = tuple(leaf for part in parts for leaf in part.leaves)
        self._rest_done = [True] * len(parts)  # by part: whether all parts after it may stay empty
        for i in reversed(range(len(parts) - 1)):
            following = parts[i + 1]
            self._rest_done[i] = self._rest_done[i + 1] and following.is_done(following.start)

    def is_done(self, state: tuple[int, Any]) -> bool:
        i, inner = state
        return self._rest_done[i] and self.parts[i].is_done(inner)

    def find_steps(self, state: tuple[int, Any], call: int) -> Iterator[Step]:
        i, inner = state
        while True:
            part = self.parts[i]
            for step in part.find_steps(inner, call):
                yield step._replace(state=(i, step.state))
            i += 1
            if i == len(self.parts) or not part.is_done(inner):
                return
            inner = self.parts[i].start


class Shuffle:
    """Parts whose calls interleave. State: theirs."""

    def __init__(self, parts: tuple[PlanPart, ...]) -> None:
        self.parts = parts
        self.start = tuple(part.start for part in parts)
        self.leaves = tuple(leaf for part in parts for leaf in part.leaves)
        self._steps: dict[tuple[int, Any, int], tuple[Step, ...]] = {}  # of a part in a state: few, met again and again

    def is_done(self, state: tuple[Any, ...]) -> bool:
        return all(part.is_done(inner) for part, inner in zip(self.parts, state, strict=True))

    def find_steps(self, state: tuple[Any, ...], call: int) -> Iterator[Step]:
        for i, part in enumerate(self.parts):
            steps: Iterable[Step] | None = self._steps.get((i, state[i], call))
            if steps is None:
                steps = part.find_steps(state[i], call)
                if not isinstance(part, Bag):  # its states are many
                    steps = self._steps[i, state[i], call] = tuple(steps)
            for taker, inner, commits, needed in steps:
                yield Step(taker, (*state[:i], inner, *state[i + 1 :]), commits, needed)


class Choice:
    """Parts of which one is met. State: None while undecided, then its number and its state."""

    start = None

    def __init__(self, parts: tuple[PlanPart, ...]) -> None:
        self.parts = parts
        self.leaves = tuple(leaf for part in parts for leaf in part.leaves)

    def is_done(self, state: tuple[int, Any] | None) -> bool:
        if state is None:
            return any(part.is_done(part.start) for part in self.parts)
        return self.parts[state[0]].is_done(state[1])

    def find_steps(self, state: tuple[int, Any] | None, call: int) -> Iterator[Step]:
        if state is None:
            for i, part in enumerate(self.parts):
                for step in part.find_steps(part.start, call):
                    yield step._replace(state=(i, step.state), commits=True)
        else:
            i, inner = state
            for step in self.parts[i].find_steps(inner, call):
                yield step._replace(state=(i, step.state))


class ParallelPart:
    """A part whose calls share a model turn. State: None before the first call, then the turn and the part's state."""

    start = None

    def __init__(self, part: PlanPart, rules: Rules) -> None:
        self.part = part
        self.rules = rules
        self.leaves = part.leaves

    def is_done(self, state: tuple[int | None, Any] | None) -> bool:
        return self.part.is_done(self.part.start if state is None else state[1])

    def find_steps(self, state: tuple[int | None, Any] | None, call: int) -> Iterator[Step]:
        call_turn = None if self.rules.relaxed else self.rules.table.actual[call].turn
        if call_turn is None and not (self.rules.relaxed or self.rules.lenient):
            call_turn = -1 - call  # without evidence a call shares its turn with no other
        turn, inner = (call_turn, self.part.start) if state is None else state
        if turn is None:
            turn = call_turn
        elif call_turn is not None and call_turn != turn:
            return
        commits = state is None or turn != state[0]
        for step in self.part.find_steps(inner, call):
            yield step._replace(state=(turn, step.state), commits=commits or step.commits)


def build_part(root: Node, rules: Rules, chosen: Mapping[Position, int] | None = None) -> PlanPart:
    """Build the machine of the plan; groups in groups of one kind become one. `chosen` decides its alternatives."""
    numbers = {leaf.id: number for number, leaf in enumerate(rules.table.leaves)}
    return _build_node(root, (), rules, numbers, chosen)


def _build_node(
    node: Node, position: Position, rules: Rules, numbers: Mapping[int, int], chosen: Mapping[Position, int] | None
) -> PlanPart:
    if isinstance(node, Leaf):
        return LeafPart(numbers[node.id], rules)
    steps = range(len(list_children(node)))
    if isinstance(node, OneOf) and chosen is not None:
        steps = range(chosen[position], chosen[position] + 1)
    inner = [_build_node(list_children(node)[step], (*position, step), rules, numbers, chosen) for step in steps]
    if isinstance(node, InOrder):
        parts: list[PlanPart] = []
        for part in inner:
            if isinstance(part, Chain):
                parts += part.parts
            elif part.leaves:
                parts.append(part)
        if not parts:
            return Bag((), rules)
        return parts[0] if len(parts) == 1 else Chain(tuple(parts))
    if isinstance(node, AnyOrder):
        return _build_shuffle(inner, rules)
    if isinstance(node, OneOf):
        return inner[0] if len(inner) == 1 else Choice(tuple(inner))
    together = _build_shuffle(inner, rules)
    return ParallelPart(together, rules) if sum(rules.maximums[leaf] for leaf in together.leaves) > 1 else together


def _build_shuffle(inner: list[PlanPart], rules: Rules) -> PlanPart:
    loose: list[int] = []  # leaves are matched, whatever their number; only what is ordered has to be searched
    parts: list[PlanPart] = []
    for part in inner:
        for element in part.parts if isinstance(part, Shuffle) else (part,):
            if isinstance(element, (LeafPart, Bag)):
                loose += element.leaves
            else:
                parts.append(element)
    if len(loose) == 1:
        parts.append(LeafPart(loose[0], rules))
    elif loose or not parts:
        parts.append(Bag(tuple(loose), rules))
    return parts[0] if len(parts) == 1 else Shuffle(tuple(parts))


class Symmetry:
    """Keys of states, equal for states that differ only by an exchange of parts or calls that nothing can tell apart.

    These are parts of one shape whose leaves fit the same calls, and calls that fit the same leaves. Which of the parts
    is further on, and which of the calls went into a bag, makes no difference to what can still happen.
    """

    def __init__(self, root: PlanPart, table: FitTable) -> None:
        self._table = table
        self._twins: dict[Shuffle, list[list[int]]] = {}  # of its parts, those that are alike
        self._bags: dict[tuple[Bag, int], object] = {}
        self._numbers: dict[object, int] = {}  # of the keys of parts
        self._numbers_by_state: dict[tuple[PlanPart, object], int] = {}
        self._build_signature(root)

    def find_key(self, part: PlanPart, state: Any) -> object:
        """Return the key of a state."""
        if isinstance(part, LeafPart) or state is None:
            return state
        if isinstance(part, Bag):
            # The leaves of the bag that each call fits, in an order that twins have in common.
            contents = self._bags.get((part, state))
            if contents is None:
                leaves = sorted(part.leaves, key=lambda leaf: self._build_leaf_signature(leaf, part.rules))
                fitting = (self._table.find_fitting(call) for call in list_bits(state))
                contents = tuple(sorted(tuple(mask >> leaf & 1 for leaf in leaves) for mask in fitting))
                self._bags[part, state] = contents
            return contents
        if isinstance(part, Shuffle):
            numbers_by_state = self._numbers_by_state
            numbers = [
                numbers_by_state.get(pair) or self._number_state(*pair) for pair in zip(part.parts, state, strict=True)
            ]
            for twins in self._twins[part]:
                for i, number in zip(twins, sorted([numbers[i] for i in twins]), strict=True):
                    numbers[i] = number
            return tuple(numbers)
        first, inner = state
        if isinstance(part, ParallelPart):
            return first, self.find_key(part.part, inner)
        assert isinstance(part, (Chain, Choice))
        return first, self.find_key(part.parts[first], inner)

    def _number_state(self, part: PlanPart, state: Any) -> int:
        """Return a number that stands for the key of a state: many keys are kept, and most are of few parts' states."""
        number = self._numbers.setdefault(self.find_key(part, state), len(self._numbers) + 1)
        self._numbers_by_state[part, state] = number
        return number

    def _build_signature(self, part: PlanPart) -> object:
        """Return a value that is equal for parts of one shape whose leaves fit the same calls."""
        if isinstance(part, LeafPart):
            return self._build_leaf_signature(part.leaf, part.rules)
        if isinstance(part, Bag):
            return "bag", tuple(sorted(self._build_leaf_signature(leaf, part.rules) for leaf in part.leaves))
        if isinstance(part, ParallelPart):
            return "together", self._build_signature(part.part)
        assert isinstance(part, (Chain, Choice, Shuffle))
        signatures = [self._build_signature(inner) for inner in part.parts]
        if isinstance(part, Shuffle):
            alike: dict[object, list[int]] = {}
            for i, signature in enumerate(signatures):
                alike.setdefault(signature, []).append(i)
            self._twins[part] = [twins for twins in alike.values() if len(twins) > 1]
        return type(part).__name__, tuple(signatures)

    def _build_leaf_signature(self, leaf: int, rules: Rules) -> tuple[int, int, int]:
        calls = range(len(self._table.actual))
        fitting = sum((self._table.find_fitting(call) >> leaf & 1) << call for call in calls)
        return fitting, rules.minimums[leaf], rules.maximums[leaf]


_Taker = LeafPart | Bag


def find_satisfying(root: PlanPart, rules: Rules, *, forbid: bool) -> dict[int, int] | None:
    """Find a satisfying assignment, call -> leaf; None if there is none. Exact; SearchTooLargeError
    beyond the bound `matching_states`.

    Depth first, and from no state twice. Under `forbid` every call is consumed. Otherwise calls may be skipped;
    minimums and maximums must then be equal, since calls beyond the least are extras.
    """
    last = len(rules.table.actual)
    visited = _VisitedStates(root, rules, forbid)
    takers: list[_Taker | None] = []
    branches = [_list_branches(root, root.start, 0, forbid)] if last else []
    if root.is_done(root.start) and not (forbid and last):
        return {}
    while branches:
        branch, call = next(branches[-1], None), len(branches)
        if branch is None:
            branches.pop()
            del takers[-1:]
        elif visited.visit(call, branch[0]):
            state, taker = branch
            if root.is_done(state) and (call == last or not forbid):
                return _collect_owners([*takers, taker])
            if call < last:
                takers.append(taker)
                branches.append(_list_branches(root, state, call, forbid))
        elif visited.hopeless:
            return None
    return None


def _list_branches(root: PlanPart, state: object, call: int, forbid: bool) -> Iterator[tuple[object, _Taker | None]]:
    """Iterate over the states after the call, and the part that took it.

    An open place that can take it never gains by waiting, unless that commits it: a later call that would have taken
    the place may be skipped as well.
    """
    may_wait = not forbid
    for step in root.find_steps(state, call):
        may_wait = may_wait and step.commits
        yield step.state, step.taker
    if may_wait:
        yield state, None


def _collect_owners(takers: Sequence[_Taker | None]) -> dict[int, int]:
    """Return call -> leaf: bags decide now which of their leaves takes which of their calls."""
    owners: dict[int, int] = {}
    bags: dict[Bag, int] = {}
    for call, taker in enumerate(takers):
        if isinstance(taker, LeafPart):
            owners[call] = taker.leaf
        elif taker is not None:
            bags[taker] = bags.get(taker, 0) | 1 << call
    for bag, calls in bags.items():
        owners |= bag.match_calls(calls).owner
    return owners


class _VisitedStates:
    """The states from which nothing new can be found, by call.

    Once there are many, the plan is first compared with the same plan in any order, and then states that differ only
    in which of two interchangeable parts is in which state count as one.
    """

    def __init__(self, root: PlanPart, rules: Rules, forbid: bool) -> None:
        self._root, self._rules, self._forbid = root, rules, forbid
        self._states: list[set[object]] = [set() for _ in range(len(rules.table.actual) + 1)]
        self._count = 0
        self._limit = get_bounds().matching_states  # some ten seconds, where long chains compete for the same calls
        self._symmetry: Symmetry | None = None
        self.hopeless = False

    def visit(self, call: int, state: object) -> bool:
        """Record a state; return whether it is new, and worth going on from."""
        key = state if self._symmetry is None else self._symmetry.find_key(self._root, state)
        states = self._states[call]
        if self.hopeless or key in states:
            return False
        states.add(key)
        self._count += 1
        if self._count == _PATIENCE:
            self.hopeless = not is_satisfiable_in_any_order(self._root, self._rules, forbid=self._forbid)
            self._symmetry = Symmetry(self._root, self._rules.table)
            self._limit = self._limit * _WIDTH // max(_WIDTH, _count_numbers(state))
        if self._count > self._limit and not self.hopeless:
            raise SearchTooLargeError(
                f"the groups of expected calls are too ambiguous to be judged: after {self._limit:,} combinations it "
                "is still open which call meets which expectation; make the expectations of calls that repeat more "
                f"specific, or split the group{explain_bound('matching_states')}"
            )
        return not self.hopeless


def _count_numbers(state: object) -> int:
    return sum(map(_count_numbers, state)) if isinstance(state, tuple) else 1


def is_satisfiable_in_any_order(root: PlanPart, rules: Rules, *, forbid: bool) -> bool:
    """Return whether a matching satisfies the plan with order and turns ignored.

    Of alternatives it counts only how many calls, and of which functions, whichever is chosen needs and can take.
    """
    table = rules.table
    slots: list[Leaf] = []
    fitting: list[int] = []  # by slot: the leaves that may stand in it, as bits

    def add_slot(least: int, most: int, leaves: Iterable[int]) -> None:
        slots.append(Leaf(len(slots), "", least, most))
        fitting.append(sum(1 << leaf for leaf in leaves))

    for part in _list_unordered(root):
        if isinstance(part, Choice):
            demand = _measure_demand(part, rules)
            for name, count in demand.names.items():
                add_slot(count, count, (leaf for leaf in part.leaves if table.leaves[leaf].name == name))
            named = demand.names.total()
            add_slot(demand.least - named, demand.most - named, part.leaves)
        else:
            for leaf in part.leaves:
                add_slot(rules.minimums[leaf], rules.maximums[leaf], (leaf,))
    calls = [ActualCall(index, "") for index in range(len(table.actual))]
    slot_table = FitTable(
        slots, calls, lambda slot, call: bool(table.find_fitting(call) & fitting[slot]), lambda slot, call: 0.0
    )
    minimums, maximums = [slot.min for slot in slots], [slot.max or 0 for slot in slots]
    matching = match_calls(slot_table, range(len(slots)), minimums, maximums, range(len(calls)))
    filled = all(len(matching.load[slot.id]) >= slot.min for slot in slots)
    return filled and (not forbid or len(matching.owner) == len(calls))


def _list_unordered(part: PlanPart) -> Iterator[LeafPart | Bag | Choice]:
    """Iterate over the leaves, bags and outermost choices of a part."""
    if isinstance(part, (Chain, Shuffle)):
        for inner in part.parts:
            yield from _list_unordered(inner)
    elif isinstance(part, ParallelPart):
        yield from _list_unordered(part.part)
    else:
        assert isinstance(part, (LeafPart, Bag, Choice))
        yield part


class _Demand(NamedTuple):
    """How many calls a part needs at least, of each function and in all, and how many it can take."""

    names: Counter[str]
    least: int
    most: int


def _measure_demand(part: PlanPart, rules: Rules) -> _Demand:
    if isinstance(part, Choice):
        demands = [_measure_demand(inner, rules) for inner in part.parts]
        names = reduce(and_, (demand.names for demand in demands))  # the least number of each
        return _Demand(names, min(demand.least for demand in demands), max(demand.most for demand in demands))
    names, least, most = Counter[str](), 0, 0
    for inner in _list_unordered(part):
        if isinstance(inner, Choice):
            demand = _measure_demand(inner, rules)
            names, least, most = names + demand.names, least + demand.least, most + demand.most
        else:
            for leaf in inner.leaves:
                names[rules.table.leaves[leaf].name] += rules.minimums[leaf]
                least, most = least + rules.minimums[leaf], most + rules.maximums[leaf]
    return _Demand(+names, least, most)


def find_most_in_order(root: PlanPart, rules: Rules) -> dict[int, int]:
    """Find as many calls as possible that fit and stand in order, then with as many needed places filled.

    The rules are relaxed. Exact while no more than MAX_WIDTH states are worth keeping after a call; beyond that the
    best of them go on.
    """
    reached: _Reached = {root.start: ((0, 0), ())}
    for call in range(len(rules.table.actual)):
        following: _Reached = {}
        for state, (value, trail) in reached.items():
            fitting, needed = value
            for step in root.find_steps(state, call):
                better = (fitting + 1, needed + step.needed)
                if step.state not in following or better > following[step.state][0]:
                    following[step.state] = (better, (trail, step.taker))
            if state not in following or value > following[state][0]:
                following[state] = (value, (trail, None))
        reached = following
        if len(reached) > MAX_WIDTH:
            reached = dict(sorted(reached.items(), key=lambda item: item[1][0], reverse=True)[:MAX_WIDTH])
    trail = max(reached.values(), key=lambda value: value[0])[1]
    takers: list[_Taker | None] = []
    while trail:
        trail, taker = trail
        takers.append(taker)
    return _collect_owners(takers[::-1])


# State -> how many calls fit and how many needed places are filled, and the takers so far as a linked list.
_Reached = dict[object, tuple[tuple[int, int], Any]]
