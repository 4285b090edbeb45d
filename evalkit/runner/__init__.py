"""The one road through the core: run_case(case, agent, settings) -> Verdict.

A case is planned (agent, mocks and expectation resolved), attempted (once per repeat, with its own mocks and
transcript), and judged. Each name is imported when first used.
"""
