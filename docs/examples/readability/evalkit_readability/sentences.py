"""Sentences and their words."""

import re


def find_longest(text: str) -> str:
    """Return the sentence with the most words."""
    return max(re.split(r"(?<=[.!?])\s+", text), key=count_words)


def count_words(sentence: str) -> int:
    return len(sentence.split())
