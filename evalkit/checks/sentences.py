"""The sentences about calls that are missing, unexpected, out of order or not parallel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evalkit.checks.call_checks import ValuesCheck
from evalkit.checks.expected_call import ExpectedCall
from evalkit.checks.matching.assignment import Assignment, Pair
from evalkit.checks.matching.plan import InOrder, Leaf, Node, Position, list_children, walk
from evalkit.checks.text_check import TextCheck
from evalkit.errors import find_nearest
from evalkit.model.transcript import FunctionCall
from evalkit.operators.shown import format_value

if TYPE_CHECKING:
    from evalkit.checks.calls import ExpectedCallList

_DEMAND_LIMIT = 100  # characters of one demand in a sentence


class Sentences:
    """Words for one assignment that does not satisfy the plan."""

    def __init__(
        self,
        expected: ExpectedCallList,
        leaves: tuple[ExpectedCall, ...],
        assignment: Assignment,
        calls: tuple[FunctionCall, ...],
    ) -> None:
        self.expected = expected
        self.leaves = leaves
        self.assignment = assignment
        self.calls = calls
        self._positions = {node.id: at for at, node in walk(expected.plan.root) if isinstance(node, Leaf)}

    def describe_missing(self, leaf: ExpectedCall, count: int) -> str:
        """``create_ticket was not called``, or how often, or with what it was not."""
        name = leaf.function_name
        call_count = sum(call.name == name for call in self.calls)
        if not call_count:
            times = f"; expected {_format_times(leaf)}" if leaf.min > 1 else ""
            return f"{name} was not called{self._describe_near_call(name)}{times}"
        if sum(sibling.function_name == name for sibling in self.leaves) == 1:
            return f"{name} was called {_format_count(call_count)}, expected {_format_times(leaf)}"
        suffix = f" {_format_count(count)}" if count > 1 else ""
        return f"{describe_demand(leaf)} is missing{suffix}: {name} was called {_format_count(call_count)}, each held against another expectation"

    def _describe_near_call(self, name: str) -> str:
        extra = [self.calls[place].name for place in self.assignment.extra]
        nearest_name = find_nearest(name, extra)
        return f" ('{nearest_name}' was)" if nearest_name is not None else ""

    def describe_unexpected(self, call: FunctionCall) -> str:
        """Why there should be no such call."""
        if not self.leaves:
            return "not expected: expected_function_calls is [], which means no call at all"
        expected = [leaf for leaf in self.leaves if leaf.function_name == call.name]
        if not expected:
            return "not expected: extra_calls is 'forbid'"
        in_force = [leaf for leaf in expected if self._is_in_force(leaf)]
        if not in_force:
            why = f"{call.name} stands in another alternative of one_of"
        elif len(in_force) == 1:
            why = f"{call.name} is expected {_format_times(in_force[0])}"
        else:
            why = f"the {len(in_force)} expected calls of {call.name} are held against others"
        return f"not expected: extra_calls is 'forbid', and {why}"

    def _is_in_force(self, leaf: ExpectedCall) -> bool:
        """Whether it stands in no alternative but those that the calls were held against."""
        position = self._positions[leaf.id]
        chosen = self.assignment.alternatives.items()
        return all(position[len(at)] == number for at, number in chosen if position[: len(at)] == at)

    def describe_miscounted(self, leaf: ExpectedCall) -> str:
        """Why one call more, or one too few, of an expectation is not among the extra calls that are allowed."""
        return (
            f"not expected: {leaf.function_name} is expected {_format_times(leaf)}; extra_calls allows other calls only"
        )

    def describe_wrong_order(self, pair: Pair) -> str:
        """Before or after which call it was expected."""
        for neighbour in sorted((*self.assignment.pairs, *self.assignment.wrong_order), key=lambda p: p.actual_index):
            before = self._must_precede(pair.leaf_id, neighbour.leaf_id)
            after = self._must_precede(neighbour.leaf_id, pair.leaf_id)
            if before and neighbour.actual_index < pair.actual_index:
                return f"out of order: expected before {self._describe_call(neighbour)}"
            if after and neighbour.actual_index > pair.actual_index:
                return f"out of order: expected after {self._describe_call(neighbour)}"
        return "out of order"

    def _describe_call(self, pair: Pair) -> str:
        call = self.calls[pair.actual_index]
        return f"call {call.index + 1}, {call.name}"

    def _must_precede(self, first_id: int, second_id: int) -> bool:
        """Whether the plan demands that calls of leaf `one` come before those of `other`."""
        first, second = self._positions[first_id], self._positions[second_id]
        common = 0
        while common < min(len(first), len(second)) and first[common] == second[common]:
            common += 1
        return first < second and isinstance(self._find_node(first[:common]), InOrder)

    def _find_node(self, position: Position) -> Node:
        node = self.expected.plan.root
        for step in position:
            node = list_children(node)[step]
        return node

    def describe_not_parallel(self, call: FunctionCall, first: FunctionCall) -> str:
        """In which turn it was made, and where it was expected."""
        return (
            f"made in model turn {_format_turn(call)}, expected in turn {_format_turn(first)}, together with "
            f"call {first.index + 1}, {first.name} (in_parallel)"
        )

    def format_alternative(self, leaf: ExpectedCall) -> str:
        """`` (closest alternative: one_of[1])`` for a leaf inside a `one_of`, else nothing."""
        for depth, step in enumerate(leaf.path):
            if step == "one_of":
                return f" (closest alternative: one_of[{leaf.path[depth + 1]}])"
        return ""


def _format_turn(call: FunctionCall) -> str:
    return "unknown" if call.turn is None else str(call.turn + 1)


def _format_count(number: int) -> str:
    return "once" if number == 1 else f"{number} times"


def _format_times(leaf: ExpectedCall) -> str:
    if leaf.max is None:
        return f"at least {_format_count(leaf.min)}" if leaf.min else "any number of times"
    if leaf.min == leaf.max:
        return _format_count(leaf.max) if not leaf.optional else f"{_format_count(leaf.max)} or not at all"
    if leaf.optional or not leaf.min:
        return f"at most {_format_count(leaf.max)}"
    return f"{leaf.min} to {leaf.max} times"


def describe_demand(leaf: ExpectedCall) -> str:
    """``create_ticket(priority="high", …)``: an expected call in one line."""
    parts: list[str] = []
    partial = not any(check.key == "arguments" for check in leaf.checks)
    for check in leaf.checks:
        if isinstance(check, ValuesCheck) and check.on_arguments:
            expected = check.matcher.to_data()
            listed = expected.items() if isinstance(expected, dict) else ()
            named = [item for item in listed if item[0] in check.names or item[0].startswith("$")]  # not ignored ones
            parts += [f"{name}={format_value(value, _DEMAND_LIMIT)}" for name, value in named]
        elif isinstance(check, TextCheck):
            parts.append(f"{check.argument} {'without' if check.excludes else 'with'} {check.phrases.format_list()}")
    if not parts and partial:
        return leaf.function_name
    return f"{leaf.function_name}({', '.join([*parts, '…'] if partial else parts)})"
