"""Why no assignment satisfies the plan: the best one that there is. Alternatives are decided beforehand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from msgspec import Struct, field

from evalkit.checks.matching.cover import Cover, cover
from evalkit.checks.matching.order import aligned, is_plain, kept_in_order
from evalkit.checks.matching.parts import Bag, One, Part, Rules
from evalkit.checks.matching.search import most_in_order
from evalkit.checks.matching.weigh import EXACT, Place, paired


class Draft(Struct):
    """Three disjoint assignments call -> leaf."""

    fitting: dict[int, int] = field(default_factory=dict)  # and in order
    displaced: dict[int, int] = field(default_factory=dict)  # fits, but stands out of order
    differing: dict[int, int] = field(default_factory=dict)  # has the name, but does not fit

    def owners(self) -> dict[int, int]:
        return self.fitting | self.displaced | self.differing


def drafts(part: Part, rules: Rules, *, forbid: bool) -> Iterator[Draft]:
    """Explanations worth comparing. `rules` are relaxed; where extras are allowed, only what is needed is paired
    with calls that do not fit: the rest of the calls is nobody's fault."""
    explainer = _Explainer(part, rules, forbid)
    if isinstance(part, (One, Bag)):
        yield explainer.unordered()
        return
    yield explainer.ordered()
    if explainer.complete():
        yield explainer.reordered()


class _Explainer:
    def __init__(self, part: Part, rules: Rules, forbid: bool) -> None:
        self.part, self.rules, self.forbid = part, rules, forbid
        self.table, self.least = rules.table, rules.least
        self.limit = rules.most if forbid else rules.least
        self.calls = range(len(rules.table.actual))
        self.anyhow: Cover = cover(rules.table, part.leaves, rules.least, rules.most, self.calls)

    def complete(self) -> bool:
        """Whether only the order (or the turns) can be wrong."""
        filled = all(len(calls) >= self.least[leaf] for leaf, calls in self.anyhow.load.items())
        return filled and (not self.forbid or len(self.anyhow.owner) == len(self.calls))

    def unordered(self) -> Draft:
        """Maximum matching; pairs that differ are chosen together with the pairs that could make room for them."""
        owner = dict(self.anyhow.owner)
        for name, free in self._free_by_name(owner).items():
            calls, improved = self._improved(name, free)
            owner = {call: leaf for call, leaf in owner.items() if call not in calls} | improved
        return self._split(owner)

    def ordered(self) -> Draft:
        """As many fitting pairs in order as possible; what is left over is then paired whatever its order."""
        places = [place for leaf in self.part.leaves for place in self._places(leaf)]
        small = len(places) * len(self.calls) <= EXACT
        if not small:
            draft = Draft(kept_in_order(self.part, self.anyhow.owner))
        elif is_plain(self.part):
            found = aligned(places, self.calls, self.table)
            draft = self._split({call: place.leaf for call, place in found.items()})
        else:
            draft = Draft(most_in_order(self.part, self.rules))
        return self._with_leftovers(draft)

    def reordered(self) -> Draft:
        """Everything fits somewhere: what stands out of order is the only thing that is wrong."""
        return self._with_leftovers(Draft(kept_in_order(self.part, self.anyhow.owner)))

    def _with_leftovers(self, draft: Draft) -> Draft:
        load = Counter(draft.owners().values())
        room = [max(0, limit - load[leaf]) for leaf, limit in enumerate(self.limit)]
        needed = [max(0, least - load[leaf]) for leaf, least in enumerate(self.least)]
        left = [call for call in self.calls if call not in draft.fitting and call not in draft.differing]
        draft.displaced = dict(cover(self.table, self.part.leaves, needed, room, left).owner)
        owner = draft.owners()
        for name, free in self._free_by_name(owner).items():
            draft.differing |= paired(self._free_places(name, owner, len(free)), free, self.table)
        return draft

    def _split(self, owner: dict[int, int]) -> Draft:
        draft = Draft()
        for call, leaf in owner.items():
            (draft.fitting if self.table.fits(leaf, call) else draft.differing)[call] = leaf
        return draft

    def _places(self, leaf: int) -> Iterator[Place]:
        named = sum(self.table.same_name(leaf, call) for call in self.calls)
        for k in range(min(self.rules.most[leaf], named)):
            yield Place(leaf, required=k < self.least[leaf], mismatch=k < self.limit[leaf])

    def _free_by_name(self, owner: dict[int, int]) -> dict[str, list[int]]:
        """The calls that are still unpaired, where one of the leaves has their name."""
        names = {self.table.leaves[leaf].name for leaf in self.part.leaves}
        free: dict[str, list[int]] = {}
        for call in self.calls:
            name = self.table.actual[call].name
            if call not in owner and name in names:
                free.setdefault(name, []).append(call)
        return free

    def _named(self, name: str) -> list[int]:
        return [leaf for leaf in self.part.leaves if self.table.leaves[leaf].name == name]

    def _free_places(self, name: str, owner: dict[int, int], most: int) -> list[Place]:
        load = Counter(owner.values())
        return [
            Place(leaf, required=k < self.least[leaf])
            for leaf in self._named(name)
            for k in range(load[leaf], min(self.limit[leaf], load[leaf] + most))
        ]

    def _improved(self, name: str, free: list[int]) -> tuple[list[int], dict[int, int]]:
        """Calls of the name that are paired anew, the free ones among them, and their pairs.

        All maximum matchings leave the same pairs alone that no alternating path from a free place or a free call
        reaches (Dulmage and Mendelsohn), so only the others need to be compared.
        """
        places = self._free_places(name, self.anyhow.owner, len(free))
        if not places or len(places) * len(free) > EXACT:
            return free, paired(places, free, self.table)
        leaves = sorted(self._reached_from_places({place.leaf for place in places}) | self._reached_from_calls(free))
        calls = sorted([*free, *(call for leaf in leaves for call in self.anyhow.load[leaf])])
        spare = Counter(place.leaf for place in places)
        region = [
            Place(leaf, required=k < self.least[leaf], mismatch=k < self.limit[leaf])
            for leaf in leaves
            for k in range(len(self.anyhow.load[leaf]) + spare[leaf])
        ]
        if len(region) * len(calls) > EXACT:
            return free, paired(places, free, self.table)
        return calls, paired(region, calls, self.table)

    def _reached_from_places(self, leaves: set[int]) -> set[int]:
        """The leaves that could lose a call, step by step, to one of these."""
        queue = sorted(leaves)
        for leaf in queue:
            for other in self._named(self.table.leaves[leaf].name):
                if other not in leaves and any(self.table.fits(leaf, call) for call in self.anyhow.load[other]):
                    leaves.add(other)
                    queue.append(other)
        return leaves

    def _reached_from_calls(self, calls: Iterable[int]) -> set[int]:
        """The leaves whose calls could be pushed out, step by step, by one of these."""
        reached: set[int] = set()
        queue = list(calls)
        for call in queue:
            for leaf in self.table.candidates(call):
                if leaf in self.anyhow.load and leaf not in reached and self.table.fits(leaf, call):
                    reached.add(leaf)
                    queue += self.anyhow.load[leaf]
        return reached
