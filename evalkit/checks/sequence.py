"""Reading `expected_function_calls`: the list and its groups, as a plan for the matching and as expected calls."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from msgspec import Struct, field

from evalkit.checks.expected_call import ExpectedCall
from evalkit.checks.keys import GROUP_KEYS
from evalkit.checks.matching.plan import (
    MAX_CHILDREN,
    AnyOrder,
    CallPlan,
    InOrder,
    InParallel,
    Leaf,
    Node,
    OneOf,
    Position,
)
from evalkit.checks.read_call import CallReader
from evalkit.checks.reading import ExpectationReader, KeyPath

MAX_LEVELS = 2  # of groups inside the list
_NO_CALLS = InOrder(())


class SequenceReader(Struct):
    """Gathers the expected calls of one list, in the order in which they are written."""

    reader: ExpectationReader
    calls: CallReader
    leaves: list[ExpectedCall] = field(default_factory=list)
    groups: dict[Position, KeyPath] = field(default_factory=dict)  # where the groups of the plan stand in the case

    def read_plan(self, path: KeyPath, value: Any, *, in_order: bool, extras: bool) -> CallPlan | None:
        """The plan of the whole list; None where it is no list."""
        if not isinstance(value, list):
            advice = "write a list of calls, or [] for no call at all"
            self.reader.report_wrong(path, value, "a list of calls", advice)
            return None
        nodes = self._read_nodes(path, value, (), 0)
        return CallPlan(InOrder(nodes) if in_order else AnyOrder(nodes), "allow" if extras else "forbid")

    def _read_nodes(self, path: KeyPath, items: list[Any], position: Position, level: int) -> tuple[Node, ...]:
        nodes: list[Node] = []
        for index, item in enumerate(items):
            node = self._read_node((*path, index), item, (*position, len(nodes)), level)
            if node is not None:
                nodes.append(node)
        return tuple(nodes)

    def _read_node(self, path: KeyPath, item: Any, position: Position, level: int) -> Node | None:
        if isinstance(item, list):
            advice = "write in_order, any_order or one_of before it"
            self.reader.add_problem(
                path, f"{self.reader.format_place(path)} is a list where a call is expected; {advice}"
            )
            return None
        keys = [key for key in item if key in GROUP_KEYS] if isinstance(item, dict) else []
        if not keys:
            return self._read_leaf(path, item)
        if len(item) > 1:
            other_keys = ", ".join(f"'{key}'" for key in item if key != keys[0])
            message = (
                f"{self.reader.format_place(path)} is a group ('{keys[0]}'), and can't have {other_keys} beside it"
            )
            self.reader.add_problem(path, message)
            return None
        if level == MAX_LEVELS:
            message = (
                f"{self.reader.format_place(path)} nests groups more than {MAX_LEVELS} levels deep; split the case"
            )
            self.reader.add_problem(path, message)
            return None
        return self._read_group((*path, keys[0]), keys[0], item[keys[0]], position, level + 1)

    def _read_group(self, path: KeyPath, key: str, items: Any, position: Position, level: int) -> Node | None:
        if not isinstance(items, list) or not items:
            description = "a list of calls or of lists of calls" if key == "one_of" else "a list of calls"
            self.reader.report_wrong(path, items, description)
            return None
        if not any(items):
            self.reader.add_problem(
                path, f"{self.reader.format_place(path)} has only empty alternatives, which demand nothing; list a call"
            )
            return None
        if key == "any_order" and len(items) > MAX_CHILDREN:
            self.reader.add_problem(
                path,
                f"{self.reader.format_place(path)} has {len(items)} children, at most {MAX_CHILDREN} can be solved exactly",
            )
            return None
        self.groups[position] = path
        if key == "one_of":
            return OneOf(
                tuple(self._read_alternative((*path, i), item, (*position, i), level) for i, item in enumerate(items))
            )
        nodes = self._read_nodes(path, items, position, level)
        if key == "in_order":
            return InOrder(nodes)
        return AnyOrder(nodes) if key == "any_order" else InParallel(nodes)

    def _read_alternative(self, path: KeyPath, item: Any, position: Position, level: int) -> Node:
        if isinstance(item, list):
            return InOrder(self._read_nodes(path, item, position, level))
        return self._read_node(path, item, position, level) or _NO_CALLS

    def _read_leaf(self, path: KeyPath, item: Any) -> Node | None:
        call = self.calls.read_expected(path, item, len(self.leaves))
        if call is None:
            return None
        self.leaves.append(call)
        if not call.optional:
            return _make_leaf(call.id, call.function_name, call.min, call.max)
        if call.min < 2:
            return _make_leaf(call.id, call.function_name, 0, call.max)
        return OneOf((_make_leaf(call.id, call.function_name, call.min, call.max), _NO_CALLS))


_make_leaf = lru_cache(maxsize=256, typed=True)(Leaf)  # the cases of a project name the same few functions
