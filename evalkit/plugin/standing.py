"""A case that several tests run counts once, with the worst of their verdicts."""

from __future__ import annotations

from evalkit.model.verdict import ERROR, FAILED, NOT_RUN, PASSED
from evalkit.plugin.neighbours import case_of
from evalkit.plugin.running import Told

_WORST_LAST = (NOT_RUN, PASSED, ERROR, FAILED)


class Standing:
    """What each test last said of a case. Case files are one test each, and need no keeping."""

    def __init__(self) -> None:
        self._told: dict[str, dict[str, Told]] = {}

    def of(self, told: Told, node_id: str) -> Told:
        """What counts of the case, now that the test `node_id` says `told`."""
        if case_of(node_id) is not None:
            return told
        by_test = self._told.setdefault(told.verdict.case_id, {})
        by_test[node_id] = told
        return max(by_test.values(), key=lambda one: _WORST_LAST.index(one.verdict.status))
