"""Runs of several agents: how a run passed from one to another, `expected_handoffs`. docs/agents.md."""
