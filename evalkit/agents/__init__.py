"""Agents under test: the contract ``agent(task) -> str | Reply``, instruction files, the function-calling loop.

Each name is imported when first used.
"""
