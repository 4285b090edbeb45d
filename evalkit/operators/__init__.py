"""The operators of expected values: compiled once at load, judged cheaply, explained in words."""
