"""Checks of cases, not of agents.

`mutants` changes observed runs, and finds changes that a case accepts. `smoke` makes a case's
expected calls against its own mocks and declarations, and finds expectations that no run satisfies. `fault_injection`
repeats a passed case with failing functions. `update` rewrites failed expectations from the observed run.
"""
