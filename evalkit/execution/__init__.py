"""Many cases: how they are run, one after another or overlapping, with the same verdicts either way."""
