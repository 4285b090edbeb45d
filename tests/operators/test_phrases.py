"""Text in text: what is folded, and where a match may start and end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalkit.operators.phrases import find_words, fold_text, has_phrase

FOLDED = [
    ("  Dear\n\tCustomer  ", "dear customer"),
    ("STRASSE", "strasse"),
    ("Straße", "strasse"),
    ("ŁÓDŹ", "łódź"),
    ("Łо́dź".replace("о́", "o\u0301"), "łódź"),
    ("a\u00a0b\u2003c", "a b c"),
    ("ΣΑΣ", "σασ"),
    ("", ""),
    (" \n ", ""),
]

WORDS = [
    ("the warranty is valid.", "valid", True),
    ("the warranty is invalid", "valid", False),
    ("validity", "valid", False),
    ("VALID", "valid", True),
    ("SN12345", "SN1", False),
    ("SN12345", "N12345", False),
    ("serial SN12345, thanks", "sn12345", True),
    ("SN-12345", "12345", True),
    ("invalid, but now valid", "valid", True),
    ("not_valid", "valid", True),
    ("a valid\n  warranty", "valid warranty", True),
    ("x-5", "-5", True),
    ("x-5", "5", True),
    ("1.55", "1.5", False),
    ("cost: 10 EUR", "10", True),
    ("cost: 100 EUR", "10", False),
    ("Łódź", "łódź", True),
    ("Łódźka", "łódź", False),
    ("größe", "gr", False),
    ("e\u0301te\u0301", "\u00e9t", False),
    ("q\u0303x", "q", False),
    ("保証期間は終了しました", "保証期間", True),
    ("保証SN12345です", "sn12345", True),
    ("保証SN12345です", "sn1234", False),
    ("การรับประกันสินค้า", "ประกัน", True),
    ("aab", "ab", False),
    ("aab ab", "ab", True),
    ("C++ and C", "c++", True),
    ("²5", "5", False),
    ("abc", "", True),
]


def has_words(text: str, words: str) -> bool:
    return find_words(fold_text(text), fold_text(words), whole_numbers=True) >= 0


@pytest.mark.parametrize(("text", "folded"), FOLDED)
def test_text_is_folded_in_form_case_and_whitespace(text: str, folded: str) -> None:
    assert fold_text(text) == folded
    assert fold_text(folded) == folded


@pytest.mark.parametrize(("text", "words", "found"), WORDS)
def test_words_neither_start_nor_end_inside_a_run_of_letters_or_digits(text: str, words: str, found: bool) -> None:
    assert has_words(text, words) is found
    assert has_phrase(text, words) or not found


def test_a_phrase_may_start_and_end_anywhere() -> None:
    assert has_phrase("invalid", "VALID")
    assert has_phrase("Dear\n  customer", "dear customer")
    assert not has_phrase("valid", "invalid")


@given(st.text(alphabet="ab1 -_é", max_size=12), st.text(alphabet="ab1 -é", min_size=1, max_size=4))
def test_words_are_found_where_every_place_is_tried(text: str, words: str) -> None:
    folded, wanted = fold_text(text), fold_text(words)
    expected = False
    for start in range(len(folded) - len(wanted) + 1):
        end = start + len(wanted)
        starts = start == 0 or not (folded[start - 1].isalnum() and folded[start : start + 1].isalnum())
        ends = end == len(folded) or not (folded[end - 1 : end].isalnum() and folded[end].isalnum())
        expected = expected or (folded[start:end] == wanted and starts and ends)
    if wanted:
        assert has_words(text, words) is expected
