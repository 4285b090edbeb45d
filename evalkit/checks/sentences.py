"""The sentences about calls that are missing, unexpected, out of order or not parallel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evalkit.checks.call_checks import ValuesCheck
from evalkit.checks.expected_call import ExpectedCall
from evalkit.checks.matching.assignment import Assignment, Pair
from evalkit.checks.matching.plan import InOrder, Leaf, Node, Position, children, walk
from evalkit.checks.text_check import TextCheck
from evalkit.errors import nearest
from evalkit.model.transcript import FunctionCall
from evalkit.operators.shown import shown

if TYPE_CHECKING:
    from evalkit.checks.calls import FunctionCalls

_LIMIT = 100  # characters of one demand in a sentence


class Sentences:
    """Words for one assignment that does not satisfy the plan."""

    def __init__(
        self,
        expected: FunctionCalls,
        leaves: tuple[ExpectedCall, ...],
        assignment: Assignment,
        calls: tuple[FunctionCall, ...],
    ) -> None:
        self.expected = expected
        self.leaves = leaves
        self.assignment = assignment
        self.calls = calls
        self._positions = {node.id: at for at, node in walk(expected.plan.root) if isinstance(node, Leaf)}

    def missing(self, leaf: ExpectedCall, count: int) -> str:
        """``create_ticket was not called``, or how often, or with what it was not."""
        name = leaf.function_name
        made = sum(call.name == name for call in self.calls)
        if not made:
            times = f"; expected {_times(leaf)}" if leaf.min > 1 else ""
            return f"{name} was not called{self._instead(name)}{times}"
        if sum(other.function_name == name for other in self.leaves) == 1:
            return f"{name} was called {_count(made)}, expected {_times(leaf)}"
        more = f" {_count(count)}" if count > 1 else ""
        return (
            f"{demand(leaf)} is missing{more}: {name} was called {_count(made)}, each held against another expectation"
        )

    def _instead(self, name: str) -> str:
        extra = [self.calls[place].name for place in self.assignment.extra]
        near = nearest(name, extra)
        return f" ('{near}' was)" if near is not None else ""

    def unexpected(self, call: FunctionCall) -> str:
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
            why = f"{call.name} is expected {_times(in_force[0])}"
        else:
            why = f"the {len(in_force)} expected calls of {call.name} are held against others"
        return f"not expected: extra_calls is 'forbid', and {why}"

    def _is_in_force(self, leaf: ExpectedCall) -> bool:
        """Whether it stands in no alternative but those that the calls were held against."""
        position = self._positions[leaf.id]
        chosen = self.assignment.alternatives.items()
        return all(position[len(at)] == number for at, number in chosen if position[: len(at)] == at)

    def miscounted(self, leaf: ExpectedCall) -> str:
        """Why one call more, or one too few, of an expectation is not among the extra calls that are allowed."""
        return f"not expected: {leaf.function_name} is expected {_times(leaf)}; extra_calls allows other calls only"

    def wrong_order(self, pair: Pair) -> str:
        """Before or after which call it was expected."""
        for other in sorted((*self.assignment.pairs, *self.assignment.wrong_order), key=lambda p: p.actual_index):
            before = self._precedes(pair.leaf_id, other.leaf_id)
            after = self._precedes(other.leaf_id, pair.leaf_id)
            if before and other.actual_index < pair.actual_index:
                return f"out of order: expected before {self._call(other)}"
            if after and other.actual_index > pair.actual_index:
                return f"out of order: expected after {self._call(other)}"
        return "out of order"

    def _call(self, pair: Pair) -> str:
        call = self.calls[pair.actual_index]
        return f"call {call.index + 1}, {call.name}"

    def _precedes(self, one: int, other: int) -> bool:
        """Whether the plan demands that calls of leaf `one` come before those of `other`."""
        first, second = self._positions[one], self._positions[other]
        common = 0
        while common < min(len(first), len(second)) and first[common] == second[common]:
            common += 1
        return first < second and isinstance(self._at(first[:common]), InOrder)

    def _at(self, position: Position) -> Node:
        node = self.expected.plan.root
        for step in position:
            node = children(node)[step]
        return node

    def not_parallel(self, call: FunctionCall, first: FunctionCall) -> str:
        """In which turn it was made, and where it was expected."""
        return (
            f"made in model turn {_turn(call)}, expected in turn {_turn(first)}, together with "
            f"call {first.index + 1}, {first.name} (in_parallel)"
        )

    def alternative(self, leaf: ExpectedCall) -> str:
        """`` (closest alternative: one_of[1])`` for a leaf inside a `one_of`, else nothing."""
        for depth, step in enumerate(leaf.path):
            if step == "one_of":
                return f" (closest alternative: one_of[{leaf.path[depth + 1]}])"
        return ""


def _turn(call: FunctionCall) -> str:
    return "unknown" if call.turn is None else str(call.turn + 1)


def _count(number: int) -> str:
    return "once" if number == 1 else f"{number} times"


def _times(leaf: ExpectedCall) -> str:
    if leaf.max is None:
        return f"at least {_count(leaf.min)}" if leaf.min else "any number of times"
    if leaf.min == leaf.max:
        return _count(leaf.max) if not leaf.optional else f"{_count(leaf.max)} or not at all"
    if leaf.optional or not leaf.min:
        return f"at most {_count(leaf.max)}"
    return f"{leaf.min} to {leaf.max} times"


def demand(leaf: ExpectedCall) -> str:
    """``create_ticket(priority="high", …)``: an expected call in one line."""
    parts: list[str] = []
    partial = not any(check.key == "arguments" for check in leaf.checks)
    for check in leaf.checks:
        if isinstance(check, ValuesCheck) and check.on_arguments:
            written = check.matcher.written()
            listed = written.items() if isinstance(written, dict) else ()
            named = [item for item in listed if item[0] in check.names or item[0].startswith("$")]  # not ignored ones
            parts += [f"{name}={shown(value, _LIMIT)}" for name, value in named]
        elif isinstance(check, TextCheck):
            parts.append(f"{check.argument} {'without' if check.excludes else 'with'} {check.phrases.listed()}")
    if not parts and partial:
        return leaf.function_name
    return f"{leaf.function_name}({', '.join([*parts, '…'] if partial else parts)})"
