"""Tests of the cases themselves, and what features need to compare the runs of an agent.

`mutants` changes what was observed, and `mutation_score` counts the changes that the case notices; `smoke` makes the
expected calls against the case's own mocks and declarations; `update` rewrites failed expectations from what happened;
`call_differences` says how the calls of two runs differ.
"""
