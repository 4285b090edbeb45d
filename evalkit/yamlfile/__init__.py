"""Strict YAML: JSON's types and no surprises, every problem with its line, positions on demand. Only importer of yaml.

`load` gives dicts, lists, strings, numbers, booleans and None, or raises SpecError with every problem of the text;
`read` gives both, `peek` the value under one key.
`positions` finds the line of a value in a second pass, which is made only when a message needs it. `dump` writes
YAML that `load` reads back as the same data. Each name is imported when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from evalkit.lazily import imported_on_use

if TYPE_CHECKING:
    from evalkit.yamlfile.builder import ParsedYaml as ParsedYaml
    from evalkit.yamlfile.builder import load as load
    from evalkit.yamlfile.builder import read as read
    from evalkit.yamlfile.peeking import ABSENT as ABSENT
    from evalkit.yamlfile.peeking import read_key as read_key
    from evalkit.yamlfile.places import Positions as Positions
    from evalkit.yamlfile.places import read_positions as read_positions
    from evalkit.yamlfile.text import Limits as Limits
    from evalkit.yamlfile.writing import dump as dump

_HOMES = {
    "ABSENT": "peeking",
    "Limits": "text",
    "Positions": "places",
    "Read": "builder",
    "dump": "writing",
    "load": "builder",
    "peek": "peeking",
    "positions": "places",
    "read": "builder",
}

__all__ = [*_HOMES]

__getattr__ = imported_on_use(__name__, _HOMES)
