"""Judging: what the case expects, held against what happened.

`compile_expectation` turns `expected_output` into an `Expectation` once, when the case is loaded;
`Expectation.judge` holds it against a Transcript and never raises.

What counts as a call: every attempt. A call that failed, that no mock answered, that named an unknown function or
whose arguments could not be read is a call like any other, and can be forbidden, counted and found in the wrong place.
Whether it succeeded is a question of its own (`outcome`). Each actual call meets at most one expected call, and
the other way round.
"""
