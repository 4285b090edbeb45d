"""One expected call: the checks that an actual call must pass to meet it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from evalkit.checks.call_checks import CallCheck, bind_check
from evalkit.checks.evidence import Evidence
from evalkit.errors import KeyPath
from evalkit.model.template import Reference
from evalkit.model.transcript import FunctionCall
from evalkit.model.verdict import CheckResult


class ExpectedCall(Struct, frozen=True):
    """An entry of `expected_function_calls`, compiled.

    `checks` come from the keys that the case writes; `implied` hold unless the case says otherwise, and are mentioned
    only where they fail. `max` is None where there is no upper limit.
    """

    id: int
    path: KeyPath
    place: str
    function_name: str
    checks: tuple[CallCheck, ...] = ()
    implied: tuple[CallCheck, ...] = ()
    min: int = 1
    max: int | None = 1
    optional: bool = False
    has_times: bool = False  # `times` is written
    per_call: bool = False  # uses {{ arguments... }}, and so means something else for each call
    has_templates: bool = False

    def bind(self, resolve: Callable[[Reference], Any]) -> ExpectedCall:
        """The same with its templates rendered; a check whose template leads nowhere holds for no call."""
        if not self.has_templates:
            return self
        return replace(self, checks=tuple(bind_check(check, resolve) for check in self.checks), has_templates=False)

    def bind_to_call(self, call: FunctionCall, evidence: Evidence) -> ExpectedCall:
        """The same as it is meant for `call`."""
        if not self.has_templates:
            return self
        from evalkit.checks.evidence import build_call_resolver

        return self.bind(build_call_resolver(evidence.resolve, call))

    def is_met_by(self, call: FunctionCall, evidence: Evidence) -> bool:
        """Whether `call` meets every demand. Its name is compared too."""
        if call.name != self.function_name:
            return False
        checks = self.bind_to_call(call, evidence).checks if self.has_templates else self.checks
        for check in checks:  # plain loops: this is asked of every pair of a long list
            if not check.is_met(call, evidence):
                return False
        for check in self.implied:  # noqa: SIM110
            if not check.is_met(call, evidence):
                return False
        return True

    def measure_distance(self, call: FunctionCall, evidence: Evidence) -> float:
        """How far `call` is from fitting: the mean share of demands that fail, over the checks. In [0, 1]."""
        failing, number = 0.0, len(self.implied)
        for check in self.implied:
            if not check.is_met(call, evidence):
                failing += 1
        for check in self.bind_to_call(call, evidence).checks:
            met, of = check.count_met(call, evidence)
            if of:
                failing += 1 - met / of
                number += 1
        return failing / number if number else 0.0

    def count_arguments_met(self, call: FunctionCall, evidence: Evidence) -> tuple[int, int]:
        """How many demands on arguments `call` meets, of how many."""
        checks = self.bind_to_call(call, evidence).checks
        counts = [check.count_met(call, evidence) for check in checks if check.on_arguments]
        return sum(met for met, _ in counts), sum(of for _, of in counts)

    def count_argument_demands(self) -> int:
        """How many demands on arguments a call that was never made has missed."""
        return sum(check.size for check in self.checks)

    def report_pass(self, call: FunctionCall) -> tuple[CheckResult, ...]:
        """The results for a call that is known to fit."""
        return tuple([check.report_pass(call) for check in self.checks])

    def report_results(self, call: FunctionCall, evidence: Evidence) -> tuple[CheckResult, ...]:
        """The results for any call: each check that passed or failed, and implied ones that failed."""
        bound_call = self.bind_to_call(call, evidence)
        results = [
            check.report_pass(call) if check.is_met(call, evidence) else check.report_failure(call, evidence)
            for check in bound_call.checks
        ]
        results += [
            check.report_failure(call, evidence) for check in bound_call.implied if not check.is_met(call, evidence)
        ]
        return tuple(results)
