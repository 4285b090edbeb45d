"""Does a case say what it means? Cases are probed here, not agents.

`mutants` and `scoring` perturb what an agent did and ask whether its case would notice; `walking` makes a case's
expected calls against its own mocks and declarations and asks whether anything could satisfy it; `updating` rewrites
what failed from what happened.
"""
