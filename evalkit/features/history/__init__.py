"""The history of runs: each run is added to a small database, and trends are read from it."""
