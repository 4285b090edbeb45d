"""Which expected call met which actual call: pure combinatorics, no knowledge of arguments.

A call is any attempt: failed, refused and repeated ones too. Each satisfies at most one expectation and the other
way round. What "fits" means is the caller's business; this package asks as seldom as it can.
"""

from evalkit.checks.matching.assignment import Assignment, Pair
from evalkit.checks.matching.plan import (
    MAX_CHILDREN,
    ActualCall,
    AnyOrder,
    InOrder,
    InParallel,
    Leaf,
    Node,
    OneOf,
    Plan,
    Position,
)
from evalkit.checks.matching.search import SearchTooLargeError
from evalkit.checks.matching.solve import solve

__all__ = [
    "MAX_CHILDREN",
    "ActualCall",
    "AnyOrder",
    "Assignment",
    "InOrder",
    "InParallel",
    "Leaf",
    "Node",
    "OneOf",
    "Pair",
    "Plan",
    "Position",
    "SearchTooLargeError",
    "solve",
]
