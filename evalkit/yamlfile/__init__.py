"""Strict YAML: JSON's types and no surprises, every problem with its line, positions on demand. Only importer of yaml.

`parse` loads a text or one of its keys, `events` reads what the parser gives and finds the line of a value in a second
pass, made when a message needs it, `write` dumps data and edits files.
"""
