"""Reading `expected_function_calls`: the list and its groups, as a plan for the matching and as expected calls."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from msgspec import Struct, field

from evalkit.checks.expected_call import ExpectedCall
from evalkit.checks.keys import GROUP_KEYS
from evalkit.checks.matching.plan import MAX_CHILDREN, AnyOrder, InOrder, InParallel, Leaf, Node, OneOf, Plan, Position
from evalkit.checks.read_call import CallReader
from evalkit.checks.reading import Path, Reader

MAX_LEVELS = 2  # of groups inside the list
_NOTHING = InOrder(())


class SequenceReader(Struct):
    """Gathers the expected calls of one list, in the order in which they are written."""

    reader: Reader
    calls: CallReader
    leaves: list[ExpectedCall] = field(default_factory=list)
    groups: dict[Position, Path] = field(default_factory=dict)  # where the groups of the plan stand in the case

    def plan(self, path: Path, value: Any, *, in_order: bool, extras: bool) -> Plan | None:
        """The plan of the whole list; None where it is no list."""
        if not isinstance(value, list):
            advice = "write a list of calls, or [] for no call at all"
            self.reader.wrong(path, value, "a list of calls", advice)
            return None
        nodes = self._nodes(path, value, (), 0)
        return Plan(InOrder(nodes) if in_order else AnyOrder(nodes), "allow" if extras else "forbid")

    def _nodes(self, path: Path, items: list[Any], position: Position, level: int) -> tuple[Node, ...]:
        nodes: list[Node] = []
        for index, item in enumerate(items):
            node = self._node((*path, index), item, (*position, len(nodes)), level)
            if node is not None:
                nodes.append(node)
        return tuple(nodes)

    def _node(self, path: Path, item: Any, position: Position, level: int) -> Node | None:
        if isinstance(item, list):
            advice = "write in_order, any_order or one_of before it"
            self.reader.problem(path, f"{self.reader.shown(path)} is a list where a call is expected; {advice}")
            return None
        keys = [key for key in item if key in GROUP_KEYS] if isinstance(item, dict) else []
        if not keys:
            return self._leaf(path, item)
        if len(item) > 1:
            others = ", ".join(f"'{key}'" for key in item if key != keys[0])
            message = f"{self.reader.shown(path)} is a group ('{keys[0]}'), and can't have {others} beside it"
            self.reader.problem(path, message)
            return None
        if level == MAX_LEVELS:
            message = f"{self.reader.shown(path)} nests groups more than {MAX_LEVELS} levels deep; split the case"
            self.reader.problem(path, message)
            return None
        return self._group((*path, keys[0]), keys[0], item[keys[0]], position, level + 1)

    def _group(self, path: Path, key: str, items: Any, position: Position, level: int) -> Node | None:
        if not isinstance(items, list) or not items:
            what = "a list of calls or of lists of calls" if key == "one_of" else "a list of calls"
            self.reader.wrong(path, items, what)
            return None
        if not any(items):
            self.reader.problem(
                path, f"{self.reader.shown(path)} has only empty alternatives, which demand nothing; list a call"
            )
            return None
        if key == "any_order" and len(items) > MAX_CHILDREN:
            self.reader.problem(
                path,
                f"{self.reader.shown(path)} has {len(items)} children, at most {MAX_CHILDREN} can be solved exactly",
            )
            return None
        self.groups[position] = path
        if key == "one_of":
            return OneOf(
                tuple(self._alternative((*path, i), item, (*position, i), level) for i, item in enumerate(items))
            )
        nodes = self._nodes(path, items, position, level)
        if key == "in_order":
            return InOrder(nodes)
        return AnyOrder(nodes) if key == "any_order" else InParallel(nodes)

    def _alternative(self, path: Path, item: Any, position: Position, level: int) -> Node:
        if isinstance(item, list):
            return InOrder(self._nodes(path, item, position, level))
        return self._node(path, item, position, level) or _NOTHING

    def _leaf(self, path: Path, item: Any) -> Node | None:
        call = self.calls.expected(path, item, len(self.leaves))
        if call is None:
            return None
        self.leaves.append(call)
        if not call.optional:
            return _leaf(call.id, call.function_name, call.min, call.max)
        if call.min < 2:
            return _leaf(call.id, call.function_name, 0, call.max)
        return OneOf((_leaf(call.id, call.function_name, call.min, call.max), _NOTHING))


_leaf = lru_cache(maxsize=256, typed=True)(Leaf)  # the cases of a project name the same few functions
