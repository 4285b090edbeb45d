"""Registers the suite's agent, so that its cases can say `agent: recipes`."""

from scenarios.recipes import agent  # noqa: F401  (importing it registers it)
