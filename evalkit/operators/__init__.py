"""JSON equality and the operators of expected values: compiled once at load, judged cheaply, explained in words.

Most names are imported when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from evalkit.lazily import imported_on_use
from evalkit.operators.shown import describe_type, format_value  # `shown` is a module, too, and would be found first

if TYPE_CHECKING:
    from evalkit.operators.application import list_operators as list_operators
    from evalkit.operators.assignment import find_maximum_matching as find_maximum_matching
    from evalkit.operators.compile import Mode as Mode
    from evalkit.operators.compile import OperatorProblems as OperatorProblems
    from evalkit.operators.compile import compile_value as compile_value
    from evalkit.operators.equality import get_kind as get_kind
    from evalkit.operators.equality import is_json_equal as is_json_equal
    from evalkit.operators.equality import to_hashable as to_hashable
    from evalkit.operators.extension import operator as operator
    from evalkit.operators.matcher import MISSING as MISSING
    from evalkit.operators.matcher import UNEXPECTED as UNEXPECTED
    from evalkit.operators.matcher import WRONG as WRONG
    from evalkit.operators.matcher import Matcher as Matcher
    from evalkit.operators.matcher import Mismatch as Mismatch
    from evalkit.operators.phrases import fold_text as fold_text
    from evalkit.operators.phrases import has_phrase as has_phrase
    from evalkit.operators.phrases import has_words as has_words

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

__all__ = ["format_value", "describe_type", *_HOMES]

__getattr__ = imported_on_use(__name__, _HOMES)
