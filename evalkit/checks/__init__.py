"""Judging: a case's expectations, compiled once, and compared with the transcript of a run.

`compile.compile_expectation` turns `expected_output` into an `Expectation` when the case is loaded;
`Expectation.judge` judges a transcript and never raises.

Every attempt counts as a call. A call that failed, that no mock answered, that named an unknown function or whose
arguments could not be read is a call like any other, and can be forbidden, counted and out of order; `outcome` says
whether it must succeed. Each actual call meets at most one expected call, and the other way round.
"""
