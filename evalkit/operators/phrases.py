"""Text in text: what is folded before comparing, and what counts as contained.

Two rules. A *phrase* (`body_contains`) is a plain substring. *Words* (strings in `arguments_contain`) may not start or
end inside a run of letters or digits: `valid` is not in `invalid`. Scripts written without spaces between
words (Chinese, Japanese, Thai, ...) have no such runs, so a match may start and end anywhere in them.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache

_UNSPACED = (
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uf900-\ufaff\U00020000-\U0003ffff]"
)


def fold_case(text: str) -> str:
    """`text` for canonical caseless comparison (Unicode Standard, definition D145, then composed)."""
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", text).casefold())


def fold_text(text: str) -> str:
    """Return `text` as text checks compare it: NFC, case folded, runs of whitespace one space, none at the ends."""
    return " ".join(fold_case(text).split())


def has_phrase(text: str, phrase: str) -> bool:
    """Return whether `phrase` is a substring of `text`, after `fold_text` on both."""
    return fold_text(phrase) in fold_text(text)


def has_words(text: str, words: str) -> bool:
    """Return whether `words` are in `text`, and neither start nor end inside a run of letters or digits."""
    return find_words(fold_text(text), fold_text(words)) >= 0


def find_words(text: str, words: str) -> int:
    """Return the first position of `words` in `text` by the rule of `has_words`, both folded already; -1 if none."""
    start = text.find(words)
    while start >= 0:
        if not _is_inside_run(text, start) and not _is_inside_run(text, start + len(words)):
            return start
        start = text.find(words, start + 1)
    return -1


def _is_inside_run(text: str, position: int) -> bool:
    """Return whether the place between two characters is inside a run of letters or digits."""
    if not 0 < position < len(text):
        return False
    return _is_run_character(text[position - 1]) and _is_run_character(text[position])


def _is_run_character(character: str) -> bool:
    if character.isascii():
        return character.isalnum()
    # A combining mark that has no composed form belongs to its letter.
    return (character.isalnum() or unicodedata.category(character)[0] == "M") and not _is_unspaced(character)


@cache
def _is_unspaced(character: str) -> bool:
    return re.match(_UNSPACED, character) is not None  # compiling it takes longer than importing this module
