"""The sweeps of a session: the ways in which passing cases are changed and run again, by its options."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evalkit.model.verdict import Verdict
from evalkit.plugin.configuration import Configuration
from evalkit.reports.summary import SWEEPS

if TYPE_CHECKING:
    from evalkit.casecheck.sweep import Sweep


def build_sweeps(configuration: Configuration) -> tuple[Sweep, ...]:
    """Return the ways in which passing cases are changed and run again, as options ask for them."""
    sweeps: list[Sweep] = []
    if configuration.faults:
        from evalkit.casecheck.fault_injection import FaultSweep  # most runs inject no faults

        sweeps.append(FaultSweep())
    if configuration.injections:
        from evalkit.casecheck.hostile_results import InjectionSweep  # most runs inject no hostile text
        from evalkit.casecheck.payloads import load_payloads

        sweeps.append(InjectionSweep(load_payloads(configuration.payloads, configuration.root)))
    if configuration.parity:
        from evalkit.casecheck.parity import ParitySweep  # most runs ask in one way

        sweeps.append(ParitySweep())
    return tuple(sweeps)


def is_sweep_missing(configuration: Configuration, verdict: Verdict) -> bool:
    """Return whether a sweep that options ask for is not in the verdict of a case."""
    return any(getattr(configuration, kind.option) and not kind.list_runs(verdict) for kind in SWEEPS)
