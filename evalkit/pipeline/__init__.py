"""The one road through the core: run_case(case, agent, settings) -> Verdict.

A case is planned (agent, mocks and expectation resolved), attempted (once per repeat, with its own mocks and
transcript), and judged. Each name is imported when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from evalkit.lazily import imported_on_use

if TYPE_CHECKING:
    from evalkit.agents.clock import keep_time as keep_time
    from evalkit.agents.clock import now as now
    from evalkit.agents.models import aclose_shared as aclose_shared
    from evalkit.pipeline.calling import count_abandoned_agents as count_abandoned_agents
    from evalkit.pipeline.hosting import AgentThread as AgentThread
    from evalkit.pipeline.hosting import current_agent_thread as current_agent_thread
    from evalkit.pipeline.hosting import get_closing_timeout as get_closing_timeout
    from evalkit.pipeline.hosting import list_open_agents as list_open_agents
    from evalkit.pipeline.hosting import wait_for_teardown as wait_for_teardown
    from evalkit.pipeline.judging import apply_quarantine as apply_quarantine
    from evalkit.pipeline.plain import judge as judge
    from evalkit.pipeline.pool import LoopPool as LoopPool
    from evalkit.pipeline.running import arun_case as arun_case
    from evalkit.pipeline.running import run_case as run_case
    from evalkit.pipeline.watch import Watchdog as Watchdog

_HOMES = {
    "abandoned_agents": "evalkit.pipeline.calling",
    "keep_time": "evalkit.agents.clock",
    "now": "evalkit.agents.clock",
    "aclose_shared": "evalkit.agents.models",
    "arun_case": "evalkit.pipeline.running",
    "Host": "evalkit.pipeline.hosting",
    "closing_s": "evalkit.pipeline.hosting",
    "host": "evalkit.pipeline.hosting",
    "judge": "evalkit.pipeline.plain",
    "marked": "evalkit.pipeline.judging",
    "LoopPool": "evalkit.pipeline.pool",
    "open_agents": "evalkit.pipeline.hosting",
    "run_case": "evalkit.pipeline.running",
    "torn_down": "evalkit.pipeline.hosting",
    "Watch": "evalkit.pipeline.watch",
}

__all__ = [*_HOMES]

__getattr__ = imported_on_use(__name__, _HOMES)
