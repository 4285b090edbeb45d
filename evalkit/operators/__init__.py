"""JSON equality and the operators of expected values: compiled once at load, judged cheaply, explained in words.

Most names are imported when first used.
"""
