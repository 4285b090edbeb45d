"""Strict YAML: JSON's types and no surprises, every problem with its line, positions on demand. Only importer of yaml.

`load` gives dicts, lists, strings, numbers, booleans and None, or raises SpecError with every problem of the text;
`read` gives both, `peek` the value under one key.
`positions` finds the line of a value in a second pass, which is made only when a message needs it. `dump` writes
YAML that `load` reads back as the same data.
"""

from __future__ import annotations

from typing import Any

from evalkit.yamlfile.builder import Read, load, read
from evalkit.yamlfile.limits import Limits
from evalkit.yamlfile.peeking import ABSENT, peek
from evalkit.yamlfile.places import Positions, positions

__all__ = ["ABSENT", "Limits", "Positions", "Read", "dump", "load", "peek", "positions", "read"]


def dump(data: Any) -> str:
    """`writing.dump`, imported when first used: running cases writes no YAML."""
    from evalkit.yamlfile import writing

    return writing.dump(data)
