"""Why no assignment satisfies the plan: the best one that there is. Alternatives are decided beforehand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from msgspec import Struct, field

from evalkit.checks.matching.cover import BipartiteMatching, match_calls
from evalkit.checks.matching.order import find_best_alignment, is_plain, keep_in_order
from evalkit.checks.matching.parts import Bag, LeafPart, Part, Rules
from evalkit.checks.matching.search import find_most_in_order
from evalkit.checks.matching.weigh import EXACT, CallSlot, find_best_pairs


class PairingDraft(Struct):
    """Three disjoint assignments call -> leaf."""

    fitting: dict[int, int] = field(default_factory=dict)  # and in order
    displaced: dict[int, int] = field(default_factory=dict)  # fits, but stands out of order
    differing: dict[int, int] = field(default_factory=dict)  # has the name, but does not fit

    def list_owners(self) -> dict[int, int]:
        return self.fitting | self.displaced | self.differing


def find_drafts(part: Part, rules: Rules, *, forbid: bool) -> Iterator[PairingDraft]:
    """Explanations worth comparing. `rules` are relaxed; where extras are allowed, only what is needed is paired
    with calls that do not fit: the rest of the calls is nobody's fault."""
    explainer = _Explainer(part, rules, forbid)
    if isinstance(part, (LeafPart, Bag)):
        yield explainer.build_unordered()
        return
    yield explainer.build_ordered()
    if explainer.is_complete():
        yield explainer.build_reordered()


class _Explainer:
    def __init__(self, part: Part, rules: Rules, forbid: bool) -> None:
        self.part, self.rules, self.forbid = part, rules, forbid
        self.table, self.minimums = rules.table, rules.minimums
        self.limits = rules.maximums if forbid else rules.minimums
        self.calls = range(len(rules.table.actual))
        self.unordered_matching: BipartiteMatching = match_calls(
            rules.table, part.leaves, rules.minimums, rules.maximums, self.calls
        )

    def is_complete(self) -> bool:
        """Whether only the order (or the turns) can be wrong."""
        filled = all(len(calls) >= self.minimums[leaf] for leaf, calls in self.unordered_matching.load.items())
        return filled and (not self.forbid or len(self.unordered_matching.owner) == len(self.calls))

    def build_unordered(self) -> PairingDraft:
        """Maximum matching; pairs that differ are chosen together with the pairs that could make room for them."""
        owner = dict(self.unordered_matching.owner)
        for name, free in self._find_free_by_name(owner).items():
            calls, improved = self._find_improved_pairs(name, free)
            owner = {call: leaf for call, leaf in owner.items() if call not in calls} | improved
        return self._split(owner)

    def build_ordered(self) -> PairingDraft:
        """As many fitting pairs in order as possible; what is left over is then paired whatever its order."""
        slots = [slot for leaf in self.part.leaves for slot in self._list_slots(leaf)]
        small = len(slots) * len(self.calls) <= EXACT
        if not small:
            draft = PairingDraft(keep_in_order(self.part, self.unordered_matching.owner))
        elif is_plain(self.part):
            alignment = find_best_alignment(slots, self.calls, self.table)
            draft = self._split({call: slot.leaf for call, slot in alignment.items()})
        else:
            draft = PairingDraft(find_most_in_order(self.part, self.rules))
        return self._add_leftovers(draft)

    def build_reordered(self) -> PairingDraft:
        """Everything fits somewhere: what stands out of order is the only thing that is wrong."""
        return self._add_leftovers(PairingDraft(keep_in_order(self.part, self.unordered_matching.owner)))

    def _add_leftovers(self, draft: PairingDraft) -> PairingDraft:
        load = Counter(draft.list_owners().values())
        room = [max(0, limit - load[leaf]) for leaf, limit in enumerate(self.limits)]
        needed = [max(0, minimum - load[leaf]) for leaf, minimum in enumerate(self.minimums)]
        remaining = [call for call in self.calls if call not in draft.fitting and call not in draft.differing]
        draft.displaced = dict(match_calls(self.table, self.part.leaves, needed, room, remaining).owner)
        owner = draft.list_owners()
        for name, free in self._find_free_by_name(owner).items():
            draft.differing |= find_best_pairs(self._list_free_slots(name, owner, len(free)), free, self.table)
        return draft

    def _split(self, owner: dict[int, int]) -> PairingDraft:
        draft = PairingDraft()
        for call, leaf in owner.items():
            (draft.fitting if self.table.is_fit(leaf, call) else draft.differing)[call] = leaf
        return draft

    def _list_slots(self, leaf: int) -> Iterator[CallSlot]:
        named = sum(self.table.has_same_name(leaf, call) for call in self.calls)
        for k in range(min(self.rules.maximums[leaf], named)):
            yield CallSlot(leaf, required=k < self.minimums[leaf], mismatch=k < self.limits[leaf])

    def _find_free_by_name(self, owner: dict[int, int]) -> dict[str, list[int]]:
        """The calls that are still unpaired, where one of the leaves has their name."""
        names = {self.table.leaves[leaf].name for leaf in self.part.leaves}
        free: dict[str, list[int]] = {}
        for call in self.calls:
            name = self.table.actual[call].name
            if call not in owner and name in names:
                free.setdefault(name, []).append(call)
        return free

    def _list_leaves_named(self, name: str) -> list[int]:
        return [leaf for leaf in self.part.leaves if self.table.leaves[leaf].name == name]

    def _list_free_slots(self, name: str, owner: dict[int, int], maximum: int) -> list[CallSlot]:
        load = Counter(owner.values())
        return [
            CallSlot(leaf, required=k < self.minimums[leaf])
            for leaf in self._list_leaves_named(name)
            for k in range(load[leaf], min(self.limits[leaf], load[leaf] + maximum))
        ]

    def _find_improved_pairs(self, name: str, free: list[int]) -> tuple[list[int], dict[int, int]]:
        """Calls of the name that are paired anew, the free ones among them, and their pairs.

        All maximum matchings leave the same pairs alone that no alternating path from a free place or a free call
        reaches (Dulmage and Mendelsohn), so only the others need to be compared.
        """
        slots = self._list_free_slots(name, self.unordered_matching.owner, len(free))
        if not slots or len(slots) * len(free) > EXACT:
            return free, find_best_pairs(slots, free, self.table)
        leaves = sorted(
            self._find_leaves_reached_from_slots({slot.leaf for slot in slots})
            | self._find_leaves_reached_from_calls(free)
        )
        calls = sorted([*free, *(call for leaf in leaves for call in self.unordered_matching.load[leaf])])
        spare = Counter(slot.leaf for slot in slots)
        region = [
            CallSlot(leaf, required=k < self.minimums[leaf], mismatch=k < self.limits[leaf])
            for leaf in leaves
            for k in range(len(self.unordered_matching.load[leaf]) + spare[leaf])
        ]
        if len(region) * len(calls) > EXACT:
            return free, find_best_pairs(slots, free, self.table)
        return calls, find_best_pairs(region, calls, self.table)

    def _find_leaves_reached_from_slots(self, leaves: set[int]) -> set[int]:
        """The leaves that could lose a call, step by step, to one of these."""
        queue = sorted(leaves)
        for leaf in queue:
            for neighbour in self._list_leaves_named(self.table.leaves[leaf].name):
                if neighbour not in leaves and any(
                    self.table.is_fit(leaf, call) for call in self.unordered_matching.load[neighbour]
                ):
                    leaves.add(neighbour)
                    queue.append(neighbour)
        return leaves

    def _find_leaves_reached_from_calls(self, calls: Iterable[int]) -> set[int]:
        """The leaves whose calls could be pushed out, step by step, by one of these."""
        reached: set[int] = set()
        queue = list(calls)
        for call in queue:
            for leaf in self.table.list_candidates(call):
                if leaf in self.unordered_matching.load and leaf not in reached and self.table.is_fit(leaf, call):
                    reached.add(leaf)
                    queue += self.unordered_matching.load[leaf]
        return reached
