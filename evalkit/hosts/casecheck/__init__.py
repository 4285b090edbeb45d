"""Runs of a case that differ from a plain one: they test the case itself, or how the agent takes a change.

The case: `mutants` changes what was observed, and `mutation_score` counts the changes that the case notices; `smoke`
makes the expected calls against the case's own mocks and declarations; `update` rewrites failed expectations from what
happened. The agent: a `sweep` repeats a passed case with one thing changed, `fault_injection` with failing functions,
`hostile_results` with instructions in what functions return (`payloads`), `parity` with streamed replies. The grader:
`judge_check` compares its grades with people's.
"""
