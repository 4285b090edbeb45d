"""Registers the agents of this suite."""

from __future__ import annotations

from scenarios.policies import agent  # noqa: F401  (importing it registers the agents)
