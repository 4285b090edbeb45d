"""One plan against one run: first whether it is satisfied, exactly; only then, if it isn't, why."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from msgspec.structs import replace

from evalkit.checks.matching.alternatives import Choices, best, decided
from evalkit.checks.matching.assignment import Assignment, Pair, SearchTooLargeError
from evalkit.checks.matching.build import build
from evalkit.checks.matching.cover import cover
from evalkit.checks.matching.explain import Draft, drafts
from evalkit.checks.matching.order import filled_between, is_plain
from evalkit.checks.matching.parts import Bag, One, Rules
from evalkit.checks.matching.plan import InParallel, Leaf, OneOf, Plan, Position, walk
from evalkit.checks.matching.search import most_in_order, satisfy
from evalkit.checks.matching.table import Table
from evalkit.checks.matching.weigh import EXACT

MAX_TRIES = 64  # combinations of alternatives that an explanation compares; fewer where each is large
_RAISES = 200  # searches spent on telling optional calls from extras, once the verdict is clear


class Task:
    """`least` and `most` are numbers of calls by leaf number."""

    def __init__(self, plan: Plan, table: Table) -> None:
        self.root, self.table = plan.root, table
        self.forbid = plan.extras == "forbid"
        self.calls = range(len(table.actual))
        self.most = [max(leaf.min, len(self.calls)) if leaf.max is None else leaf.max for leaf in table.leaves]
        self.least = [leaf.min for leaf in table.leaves]
        if not self.forbid:
            self._require_optional_leaves_with_strays()
        nodes = list(walk(self.root))
        self.groups = [position for position, node in nodes if isinstance(node, InParallel)]
        self.has_choices = any(isinstance(node, OneOf) for _, node in nodes)
        self.positions = {node.id: position for position, node in nodes if isinstance(node, Leaf)}

    def _require_optional_leaves_with_strays(self) -> None:
        """An optional call that was made with other arguments is no extra. See `solve`."""
        optional = {leaf.name for leaf in self.table.leaves if leaf.min == 0 and leaf.max != 0}
        strays = {
            self.table.actual[call].name
            for call in self.calls
            if self.table.actual[call].name in optional and not self.table.fitting(call)
        }
        for number, leaf in enumerate(self.table.leaves):
            if leaf.name in strays and leaf.max != 0:
                self.least[number] = max(1, leaf.min)

    def answer(self) -> Assignment:
        owner = self._satisfying(lenient=False)
        if owner is not None:
            return self._assignment(Draft(owner), self._decided(owner), satisfied=True)
        if self.groups and any(call.turn is None for call in self.table.actual):
            owner = self._satisfying(lenient=True)
            if owner is not None:
                found = self._assignment(Draft(owner), self._decided(owner), satisfied=False)
                return replace(found, unproven=tuple(self._without_turns(found)))
        size = max(1, len(self.table.leaves) * len(self.calls))
        tries = max(2, min(MAX_TRIES, MAX_TRIES * EXACT // size))
        return best(self.root, self._explained, self._badness, tries, self._promising)

    # Whether it is satisfied

    def _satisfying(self, *, lenient: bool) -> dict[int, int] | None:
        """Call -> leaf, or None."""
        part = build(self.root, Rules(self.table, self.least, self.most))
        if isinstance(part, (One, Bag)):
            found = cover(self.table, part.leaves, self.least, self.most, self.calls)
            filled = all(len(calls) >= self.least[leaf] for leaf, calls in found.load.items())
            return found.owner if filled and (not self.forbid or len(found.owner) == len(self.calls)) else None
        owner = self._search(self.least, lenient)
        if owner is None or self.forbid:
            return owner
        with suppress(SearchTooLargeError):  # the verdict is clear already
            owner = self._with_optional_calls(owner, lenient)
        return filled_between(part, owner, self.most, self.table) if is_plain(part) else owner

    def _search(self, least: list[int], lenient: bool) -> dict[int, int] | None:
        rules = Rules(self.table, least, self.most if self.forbid else least, lenient)
        return satisfy(build(self.root, rules), rules, forbid=self.forbid)

    def _with_optional_calls(self, owner: dict[int, int], lenient: bool) -> dict[int, int]:
        """Extras that an optional leaf, or one with room for more, takes as well: all together or one by one."""
        raised = [min(self.most[leaf], low + len(self._waiting(leaf, owner))) for leaf, low in enumerate(self.least)]
        if raised == self.least:
            return owner
        found = self._search(raised, lenient)
        if found is not None and len(found) > len(owner):
            return found
        least, tries = self.least.copy(), 0 if len(self.least) * len(self.calls) <= EXACT else _RAISES
        for leaf in [leaf for leaf, count in enumerate(raised) if count > least[leaf]]:
            while tries < _RAISES and least[leaf] < self.most[leaf] and self._waiting(leaf, owner):
                tries += 1
                least[leaf] += 1
                found = self._search(least, lenient)
                if found is None or len(found) <= len(owner):
                    least[leaf] -= 1
                    break
                owner = found
        return owner

    def _waiting(self, leaf: int, owner: dict[int, int]) -> list[int]:
        if self.most[leaf] == self.least[leaf]:
            return []
        return [
            call
            for call in self.calls
            if call not in owner and self.table.same_name(leaf, call) and self.table.fits(leaf, call)
        ]

    # What is wrong

    def _promising(self) -> Choices:
        """Alternatives to begin with where there are too many combinations to try them all."""
        rules = Rules(self.table, self.least, self.most, relaxed=True)
        if len(self.table.leaves) * len(self.calls) > 4 * EXACT:
            return {}
        return self._decided(most_in_order(build(self.root, rules), rules))

    def _explained(self, choices: Choices) -> Assignment:
        rules = Rules(self.table, self.least, self.most, relaxed=True)
        part = build(self.root, rules, choices)
        found = (self._assignment(draft, choices, satisfied=False) for draft in drafts(part, rules, forbid=self.forbid))
        return min(found, key=lambda each: (-sum(pair.fits for pair in each.pairs), *self._badness(each)))

    def _badness(self, found: Assignment) -> tuple[float, ...]:
        """Fewer problems first, then more calls that fit at all, then less distance."""
        differing = [pair for pair in found.pairs if not pair.fits]
        missing = sum(count for _, count in found.missing)
        extra = len(found.extra) if self.forbid else 0
        problems = missing + extra + len(differing) + len(found.wrong_order) + len(found.not_parallel)
        fitting = len(found.pairs) - len(differing) + len(found.wrong_order)
        numbers = {leaf.id: number for number, leaf in enumerate(self.table.leaves)}
        at = {call.index: position for position, call in enumerate(self.table.actual)}
        distance = sum(self.table.distance(numbers[pair.leaf_id], at[pair.actual_index]) for pair in differing)
        return problems, -fitting, distance

    # How it is told

    def _decided(self, owner: dict[int, int]) -> Choices:
        if not self.has_choices:
            return {}
        used = {self.table.leaves[leaf].id for leaf in owner.values()}
        return decided(self.root, used, {leaf.id: low for leaf, low in zip(self.table.leaves, self.least, strict=True)})

    def _assignment(self, draft: Draft, choices: Choices, *, satisfied: bool) -> Assignment:
        owners = draft.owners()
        found = Assignment(
            satisfied=satisfied,
            pairs=self._pairs(draft.fitting | draft.differing, draft.differing),
            missing=() if satisfied else tuple(self._missing(owners, choices)),
            extra=tuple(call.index for position, call in enumerate(self.table.actual) if position not in owners),
            wrong_order=self._pairs(draft.displaced, {}),
            alternatives=choices,
        )
        return found if satisfied or not self.groups else replace(found, not_parallel=tuple(self._apart(found)))

    def _pairs(self, owner: dict[int, int], differing: dict[int, int]) -> tuple[Pair, ...]:
        leaves, actual = self.table.leaves, self.table.actual
        return tuple(
            Pair(leaves[leaf].id, actual[call].index, call not in differing) for call, leaf in sorted(owner.items())
        )

    def _missing(self, owners: dict[int, int], choices: Choices) -> Iterator[tuple[int, int]]:
        load = [0] * len(self.table.leaves)
        for leaf in owners.values():
            load[leaf] += 1
        for expected, count in zip(self.table.leaves, load, strict=True):
            if count < expected.min and self._in_force(expected, choices):
                yield expected.id, expected.min - count

    def _in_force(self, leaf: Leaf, choices: Choices) -> bool:
        position = self.positions[leaf.id]
        return all(
            position[: len(choice)] != choice or position[len(choice)] == step for choice, step in choices.items()
        )

    def _turns(self, found: Assignment, group: Position) -> list[int | None]:
        """The turns of the calls that the group met."""
        turns = {call.index: call.turn for call in self.table.actual}
        return [
            turns[pair.actual_index]
            for pair in (*found.pairs, *found.wrong_order)
            if self.positions[pair.leaf_id][: len(group)] == group
        ]

    def _apart(self, found: Assignment) -> Iterator[Position]:
        for group in self.groups:
            if len({turn for turn in self._turns(found, group) if turn is not None}) > 1:
                yield group

    def _without_turns(self, found: Assignment) -> Iterator[Position]:
        for group in self.groups:
            turns = self._turns(found, group)
            if len(turns) > 1 and None in turns:
                yield group
