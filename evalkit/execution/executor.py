"""Running one case for a caller that must get a verdict, whatever happens."""

from __future__ import annotations

from typing import Any

from evalkit.model.case import Case
from evalkit.model.settings import Settings
from evalkit.model.verdict import ERROR, Reason, Verdict
from evalkit.pipeline import run_case


class Executor:
    """Runs cases one after another."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def run(self, case: Case, agent: Any = None) -> Verdict:
        """The verdict of `case`; `agent` is used in place of the case's own. Only KeyboardInterrupt passes through."""
        try:
            return run_case(case, agent, self._settings)
        except Exception as error:
            return defect(case, error)


def defect(case: Case, error: BaseException) -> Verdict:
    """The verdict of a case on which evalkit itself failed: not measured, and told with the place of the defect."""
    import traceback

    where = "".join(traceback.format_exception(error)[-3:]).strip()
    reason = Reason(code="not_measured", message=f"evalkit itself failed on this case; please report it:\n{where}")
    return Verdict(
        case_id=case.id,
        status=ERROR,
        reasons=(reason,),
        description=case.description,
        category=case.category,
        tags=case.tags,
        must_pass=case.must_pass,
        case=case.merged,
    )
