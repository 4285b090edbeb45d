"""Registers the suite's agent, so that its cases can say `agent: warranty`."""

from scenarios.warranty import agent  # noqa: F401  (importing it registers it)
