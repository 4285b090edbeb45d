"""--evalkit-max-cost on a cluster: the session sums up the money that all processes spend, and sends it to each.

A process reports the sum of what it spent after every reply of a model, and stops by itself once that and the reported
sums of the others come to the budget. It gets those with each batch, and at once when the budget is spent. Beyond the
budget go only the requests that are under way then, and those of the moment until all processes know. Reports of a
process that dies stay valid; money that it had not reported yet is not counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

TOPIC = "evalkit-spent-"  # and the name of the run: under it workers tell, through Dask's events
SpentByProcess = dict[str, float]  # USD by process of this run


class ClusterBudget:
    """The sum, in the process of the session. `send` tells workers, all of them if it is given no address."""

    def __init__(self, cap_usd: float, send: Callable[[SpentByProcess, str | None], None]) -> None:
        self._cap_usd = cap_usd
        self._send = send
        self._is_exhausted = False
        self.usd_by_process: SpentByProcess = {}

    def handle_event(self, event: tuple[float, Mapping[str, Any]]) -> None:
        """Handle an event of Dask's: a process has spent more. Called on the event loop of Dask's client."""
        _, message = event
        process = message["process"]
        self.usd_by_process = {
            **self.usd_by_process,
            process: max(self.usd_by_process.get(process, 0.0), message["usd"]),
        }
        if sum(self.usd_by_process.values()) >= self._cap_usd:
            everybody = not self._is_exhausted
            self._is_exhausted = True
            self._send(self.usd_by_process, None if everybody else message["worker"])
