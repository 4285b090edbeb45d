"""Registers the suite's agents."""

from scenarios.procedures.as_found import agent as as_found  # noqa: F401  (importing it registers it)
from scenarios.procedures.repaired import agent as repaired  # noqa: F401
