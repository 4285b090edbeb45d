"""Registers the agents of this suite."""

from __future__ import annotations

from scenarios.reviews import agent  # noqa: F401  (importing it registers the agents)
