"""JSON equality and the operators of expected values: compiled once at load, judged cheaply, explained in words."""

from __future__ import annotations

from evalkit.operators.assignment import maximum_matching
from evalkit.operators.compile import Mode, OperatorProblems, compile_value, known_operators
from evalkit.operators.equality import canonical, json_equal, kind
from evalkit.operators.extension import operator
from evalkit.operators.matcher import MISSING, UNEXPECTED, WRONG, Matcher, Mismatch
from evalkit.operators.phrases import contains_phrase, contains_words, fold_text
from evalkit.operators.shown import shown, type_shown

__all__ = [
    "MISSING",
    "UNEXPECTED",
    "WRONG",
    "Matcher",
    "Mismatch",
    "Mode",
    "OperatorProblems",
    "canonical",
    "compile_value",
    "contains_phrase",
    "contains_words",
    "fold_text",
    "json_equal",
    "kind",
    "known_operators",
    "maximum_matching",
    "operator",
    "shown",
    "type_shown",
]
