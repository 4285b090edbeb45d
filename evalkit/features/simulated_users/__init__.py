"""A user whom a script, a Python callable or a model plays: `input.user`. docs/simulated-users.md."""
