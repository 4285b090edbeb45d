"""Replies in short sentences: `readability: {max_words: 20}` in a case, or in a suite for all of its cases."""

from evalkit.hooks import CASE, Entry

# What evalkit knows of the feature before a case asks for it: nothing else is imported until then.
ENTRY = Entry(name="readability", target="evalkit_readability.feature:Readability", keys={CASE: ("readability",)})
