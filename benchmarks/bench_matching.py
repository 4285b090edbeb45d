"""How long matching takes: medians of several rounds, and how often it had to ask whether a pair fits.

    python benchmarks/bench_matching.py [ROUNDS]

Bounds that must hold: 1,000 expected against 1,000 actual calls of one function, any order, under 2 s; 10 against 10
under 1 ms. Arguments are mappings that are compared with ``==``, as the checks do first.
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence

from evalkit.checks.matching.assign import solve
from evalkit.checks.matching.plan import ActualCall, AnyOrder, CallPlan, InOrder, Leaf, Node

Arguments = dict[str, object]
Wanted = Callable[[Arguments], bool]


class Bench:
    """One workload: what is wanted and what was sent, all of one function."""

    def __init__(self, root: Callable[[tuple[Node, ...]], Node], wanted: Sequence[Wanted], sent: Sequence[Arguments]):
        leaves = tuple(Leaf(number, "check_warranty") for number in range(len(wanted)))
        self.plan = CallPlan(root(leaves))
        self.actual = [ActualCall(index, "check_warranty") for index in range(len(sent))]
        self.wanted, self.sent, self.asked = wanted, sent, 0

    def fits(self, leaf: int, call: int) -> bool:
        self.asked += 1
        return self.wanted[leaf](self.sent[call])

    def distance(self, leaf: int, call: int) -> float:
        return abs(hash(str(self.sent[call])) % 100 - leaf % 100) / 100

    def run(self) -> bool:
        self.asked = 0
        return solve(self.plan, self.actual, self.fits, self.distance).satisfied


def sent(number: int) -> Arguments:
    return {"serial_number": f"SN{number:05}", "priority": "normal", "lines": [number, number + 1]}


def equal(number: int) -> Wanted:
    wanted = sent(number)
    return lambda arguments: arguments == wanted


def workloads(n: int) -> dict[str, Bench]:
    dice = random.Random(n)
    numbers = list(range(n))
    shuffled = dice.sample(numbers, n)
    exact, calls = [equal(k) for k in numbers], [sent(k) for k in numbers]
    one_wrong = [sent(k if k != n // 2 else -1) for k in shuffled]
    few = [frozenset(dice.sample(numbers, 3)) for _ in numbers]
    vague: list[Wanted] = [lambda a, f=f: int(str(a["serial_number"])[2:]) in f for f in few]  # type: ignore[misc]
    return {
        "strict, all as expected": Bench(InOrder, exact, calls),
        "strict, one wrong argument": Bench(InOrder, exact, [sent(k if k != n // 2 else -1) for k in numbers]),
        "strict, shuffled": Bench(InOrder, exact, [sent(k) for k in shuffled]),
        "any, in order": Bench(AnyOrder, exact, calls),
        "any, shuffled": Bench(AnyOrder, exact, [sent(k) for k in shuffled]),
        "any, shuffled, one wrong argument": Bench(AnyOrder, exact, one_wrong),
        "any, each fits three calls": Bench(AnyOrder, vague, calls),
        "any, identical, one too many": Bench(AnyOrder, [equal(0)] * n, [sent(0)] * (n + 1)),
        "any, nothing fits": Bench(AnyOrder, exact, [sent(-1 - k) for k in numbers]),
    }


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    for n in (3, 10, 1000):
        for name, bench in workloads(n).items():
            times = []
            for _ in range(rounds if n == 1000 else rounds * 20):
                start = time.perf_counter()
                satisfied = bench.run()
                times.append(time.perf_counter() - start)
            print(
                f"{n:5} x {n:<5} {name:36} {'satisfied' if satisfied else 'not':9} "
                f"{statistics.median(times) * 1000:10.3f} ms {bench.asked:9,} asked"
            )


if __name__ == "__main__":
    main()
