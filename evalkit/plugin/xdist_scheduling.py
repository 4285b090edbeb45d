"""Scheduling under xdist by whole batches of cases, so that each worker can let the cases of its batch overlap.

xdist tells a worker only which test is next. So batches are made the same way in every process, from the order of
collection, and a worker may start any case of the batch that it is in. When a worker dies, any case that it had
started may be the culprit: those are run again one by one, and the one that dies alone is named.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling, LoadGroupScheduling, LoadScopeScheduling

from evalkit.plugin.splitting import WorkerExchange, allow_replacement, split_into_batches

_BATCH, _ALONE = "batch ", "alone: "


class ScopeScheduling(LoadScopeScheduling):  # type: ignore[misc]  # xdist comes without types
    """xdist's scheduling by scopes, corrected for workers that die.

    The base gives the test on which one died to the next worker, waits for ever for a worker that came later and was
    given one test, and raises KeyError if a worker dies while another one is beginning.
    """

    def add_node_collection(self, node: Any, collection: Sequence[str]) -> None:
        """Add what a worker has collected. One that found other tests than the first ones did gets none."""
        super().add_node_collection(node, collection)
        if node not in self.registered_collections:
            node.shutdown()

    def remove_node(self, node: Any) -> str | None:
        """Remove a worker that has ended. Return the test on which it died, if it did and that is known."""
        workload = self.assigned_work.pop(node)
        units = {scope: unit for scope, unit in workload.items() if not all(unit.values())}
        if not units:
            return None
        culprit = self._take_culprit(units)
        self.workqueue.update(units)
        for remaining_node in self.assigned_work:
            self._reschedule(remaining_node)
        return culprit

    def _take_culprit(self, units: dict[str, dict[str, bool]]) -> str | None:
        """Take the test that was running out of the tests that are distributed again."""
        scope, unit = next(iter(units.items()))
        culprit = next(nodeid for nodeid, completed in unit.items() if not completed)
        del unit[culprit]
        if all(unit.values()):
            del units[scope]
        return culprit

    def _reschedule(self, node: Any) -> None:
        """Reschedule until the worker can begin: it runs no test before it knows the next one, or the end.

        The base sees to that at the start alone.
        """
        if node not in self.registered_collections:  # it is starting: it is scheduled once it has collected
            return
        super()._reschedule(node)
        while not node.shutting_down and self._pending_of(self.assigned_work[node]) < 2:
            super()._reschedule(node)


class FileScheduling(ScopeScheduling, LoadFileScheduling):  # type: ignore[misc]
    """Scheduling by files."""


class GroupScheduling(ScopeScheduling, LoadGroupScheduling):  # type: ignore[misc]
    """Scheduling by groups."""


BY_SCOPE = {"loadscope": ScopeScheduling, "loadfile": FileScheduling, "loadgroup": GroupScheduling}


class BatchScheduling(ScopeScheduling):
    """Scheduling by scopes, where a scope is a batch of cases; any other test is a scope of its own."""

    def __init__(
        self, config: pytest.Config, log: Any, exchange: WorkerExchange, is_case: Callable[[str], bool]
    ) -> None:
        super().__init__(config, log)
        self._exchange = exchange
        self._is_case = is_case
        self._batches: dict[str, int] | None = None
        self._apart: set[str] = set()
        exchange.start_batches()

    def _split_scope(self, nodeid: str) -> str:
        if nodeid in self._apart:
            return _ALONE + nodeid
        if self._batches is None:
            self._batches = split_into_batches(list(filter(self._is_case, self.collection or ())), self.numnodes)
        number = self._batches.get(nodeid)
        return nodeid if number is None else f"{_BATCH}{number}"

    def _take_culprit(self, units: dict[str, dict[str, bool]]) -> str | None:
        """Distribute the begun cases of a batch again, one by one: any of them may have been running."""
        scope = next(iter(units))
        pending = [nodeid for nodeid, completed in units.pop(scope).items() if not completed]
        culprit = pending.pop(0) if len(pending) == 1 or not scope.startswith(_BATCH) else None
        self._apart.update(pending)
        self._exchange.set_apart(pending)
        if culprit is None:
            allow_replacement(self.config)
        self.workqueue.update({_ALONE + nodeid: {nodeid: False} for nodeid in pending})
        return culprit
