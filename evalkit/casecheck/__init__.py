"""Checks of cases, not of agents.

`mutants` changes observed runs, and finds changes that a case accepts. `smoke` makes a case's
expected calls against its own mocks and declarations, and finds expectations that no run satisfies. `sweep`
repeats a passed case with one thing changed: `fault_injection` with failing functions, `hostile_results` with
instructions in what functions return (`payloads`), `parity` with streamed replies. `update` rewrites failed
expectations from the observed run.
"""
