"""One line of the trace in the making: an actual call, or one that is missing, and what was found of it so far."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct, field

from evalkit.checks.expected_call import ExpectedCall
from evalkit.model.transcript import FunctionCall
from evalkit.model.verdict import FAILED, PASSED, CallVerdict, CheckResult, Score


class CallResult(Struct):
    """What becomes a CallVerdict. `leaf` is the expected call that it was held against."""

    call: FunctionCall | None
    leaf: ExpectedCall | None = None
    results: tuple[CheckResult, ...] = ()

    def add(self, *results: CheckResult) -> None:
        self.results += results

    def to_verdict(self) -> CallVerdict:
        status = PASSED
        for result in self.results:
            if result.status == FAILED:
                status = FAILED
        leaf = self.leaf
        if leaf is None:
            return CallVerdict(call=self.call, status=status, results=self.results)
        return CallVerdict(
            call=self.call,
            status=status,
            expectation=leaf.place,
            expected_name=leaf.function_name,
            results=self.results,
        )


class CallsResult(Struct):
    """What the expected calls came to. `drafts` are in the order of the trace; `results` are about the whole list."""

    call_results: list[CallResult]
    results: list[CheckResult] = field(default_factory=list)
    score: Score | None = None


def list_unjudged(calls: Iterable[FunctionCall]) -> list[CallResult]:
    """Drafts of calls that no expectation is held against."""
    return [CallResult(call) for call in calls]
