"""The hooks of simulated users."""

from __future__ import annotations

from evalkit.features.simulated_users import results
from evalkit.hooks import Feature, RunReport
from evalkit.records.side_usage import SideUsage
from evalkit.records.transcript import Simulation, Transcript


class SimulatedUsers(Feature):
    """Users with a goal, a persona and facts."""

    name = results.NAME
    transcript_data = Simulation

    def account(self, transcript: Transcript) -> SideUsage:
        return results.account(transcript)

    def describe_usage(self, total: SideUsage) -> str:
        return results.describe_usage(total)

    def report_run(self, transcript: Transcript) -> RunReport:
        return results.report_run(transcript)
