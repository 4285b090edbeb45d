"""Intervals, repeats and comparisons: what numbers of passed and failed runs allow one to say.

Standard library only. Decisions (p-values against a level, likelihood ratios against a bound, numbers of runs) are
made in integers and fractions; intervals are floats. Rates are between 0 and 1. Every formula names its source.
Each name is imported when first used: a gate on a pass rate needs no test of significance.
"""
