"""Registers the agent of this suite."""

from __future__ import annotations

from scenarios.refunds import agent, ledger  # noqa: F401  (importing them registers the agents)
