"""Registers the suite's agent, so that its cases can say `agent: scraping`."""

from scenarios.scraping import agent  # noqa: F401  (importing it registers it)
