"""A case that several tests run counts once, with the worst of their verdicts."""

from __future__ import annotations

from evalkit.model.verdict import ERROR, FAILED, NOT_RUN, PASSED
from evalkit.plugin.neighbours import parse_case_id
from evalkit.plugin.running import WireVerdict

SEVERITY = (NOT_RUN, PASSED, ERROR, FAILED)


class CaseVerdicts:
    """What each test last said of a case. Case files are one test each, and need no keeping."""

    def __init__(self) -> None:
        self._by_case: dict[str, dict[str, WireVerdict]] = {}

    def record(self, verdict: WireVerdict, node_id: str) -> WireVerdict:
        """What counts of the case, now that the test `node_id` says `told`."""
        if parse_case_id(node_id) is not None:
            return verdict
        by_test = self._by_case.setdefault(verdict.verdict.case_id, {})
        by_test[node_id] = verdict
        return max(by_test.values(), key=lambda one: SEVERITY.index(one.verdict.status))
