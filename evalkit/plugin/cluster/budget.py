"""--evalkit-max-cost on a cluster: what its processes spend is summed up here, and each is told of the others.

A process tells the sum of what it spent after every reply of a model, and stops by itself once that and what it has
heard of come to the budget. What the others spent it hears with each parcel, and at once when the budget is spent. So
what is asked beyond the budget are the requests that were under way by then, and those of the moment until all know.
What a process spent stays known when it dies; what it had not told yet, does not.
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
