"""Strict YAML: JSON's types and no surprises, every problem with its line, positions on demand. Only importer of yaml.

`load` gives dicts, lists, strings, numbers, booleans and None, or raises SpecError with every problem of the text;
`read` gives both, `peek` the value under one key.
`positions` finds the line of a value in a second pass, which is made only when a message needs it. `dump` writes
YAML that `load` reads back as the same data. Each name is imported when first used.
"""
