"""Strict YAML: JSON's types and no surprises, every problem with its line, positions on demand. Only importer of yaml.

`load` gives dicts, lists, strings, numbers, booleans and None, or raises SpecError with every problem of the text;
`read` gives both.
`positions` finds the line of a value in a second pass, which is made only when a message needs it. `dump` writes
YAML that `load` reads back as the same data.
"""

from __future__ import annotations

from evalkit.yamlfile.builder import Read, load, read
from evalkit.yamlfile.limits import Limits
from evalkit.yamlfile.places import Positions, positions
from evalkit.yamlfile.writing import dump

__all__ = ["Limits", "Positions", "Read", "dump", "load", "positions", "read"]
