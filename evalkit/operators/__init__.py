"""JSON equality and the operators of expected values: compiled once at load, judged cheaply, explained in words.

Most names are imported when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from evalkit.lazily import imported_on_use
from evalkit.operators.shown import shown, type_shown  # `shown` is a module, too, and would be found first

if TYPE_CHECKING:
    from evalkit.operators.application import known_operators as known_operators
    from evalkit.operators.assignment import maximum_matching as maximum_matching
    from evalkit.operators.compile import Mode as Mode
    from evalkit.operators.compile import OperatorProblems as OperatorProblems
    from evalkit.operators.compile import compile_value as compile_value
    from evalkit.operators.equality import canonical as canonical
    from evalkit.operators.equality import json_equal as json_equal
    from evalkit.operators.equality import kind as kind
    from evalkit.operators.extension import operator as operator
    from evalkit.operators.matcher import MISSING as MISSING
    from evalkit.operators.matcher import UNEXPECTED as UNEXPECTED
    from evalkit.operators.matcher import WRONG as WRONG
    from evalkit.operators.matcher import Matcher as Matcher
    from evalkit.operators.matcher import Mismatch as Mismatch
    from evalkit.operators.phrases import contains_phrase as contains_phrase
    from evalkit.operators.phrases import contains_words as contains_words
    from evalkit.operators.phrases import fold_text as fold_text

_HOMES = {
    "MISSING": "matcher",
    "UNEXPECTED": "matcher",
    "WRONG": "matcher",
    "Matcher": "matcher",
    "Mismatch": "matcher",
    "Mode": "compile",
    "OperatorProblems": "compile",
    "canonical": "equality",
    "compile_value": "compile",
    "contains_phrase": "phrases",
    "contains_words": "phrases",
    "fold_text": "phrases",
    "json_equal": "equality",
    "kind": "equality",
    "known_operators": "application",
    "maximum_matching": "assignment",
    "operator": "extension",
}

__all__ = ["shown", "type_shown", *_HOMES]

__getattr__ = imported_on_use(__name__, _HOMES)
