"""Registers the suite's agent, so that its cases can say `agent: navigation`."""

from scenarios.navigation import agent  # noqa: F401  (importing it registers it)
