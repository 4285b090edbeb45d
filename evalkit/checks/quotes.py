"""Quotes by which a grader says what decided: they must stand in the evidence that it was shown.

A quote stands there as whole words, by the folding of all text checks (case, whitespace and typography aside), in one
text of the evidence or in its JSON, as the grader saw it. What a grader makes up, or takes from elsewhere, does not.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from evalkit.checks.evidence import extract_texts
from evalkit.operators.phrases import find_words, fold_text

_AROUND = "\"' "  # a quote may be handed in with its quotation marks


def find_invented_quote(quotes: Iterable[str], evidence: object) -> str | None:
    """Return the first quote that is not in the evidence; None if all of them are."""
    texts: list[str] = []
    for quote in quotes:
        if not texts:
            layouts = (json.dumps(evidence, ensure_ascii=False, indent=indent) for indent in (None, 2))
            texts = [*extract_texts(evidence), *map(fold_text, layouts)]
        folded = fold_text(quote).strip(_AROUND)
        if not folded or not any(find_words(text, folded) >= 0 for text in texts):
            return quote
    return None
