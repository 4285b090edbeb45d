"""Function calls that a model wrote as text. The parser is loaded with the first text: most calls are native."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from evalkit.lazy import LazyModule
from evalkit.wire.text_calls.parsed import ParsedText

if TYPE_CHECKING:
    from evalkit.wire.text_calls import search
    from evalkit.wire.text_calls.names import DeclaredFunction
else:
    search = LazyModule("evalkit.wire.text_calls.search")


def parse_text_calls(text: str, functions: Iterable[DeclaredFunction] | None = None) -> ParsedText:
    """Find the calls in a model's `text`.

    `functions`: declarations (Declaration, mappings with `name` and `parameters`, OpenAI's tool dicts, or plain names).
    With them only declared names are calls; without, only explicit envelopes are. Never raises on any text.
    """

    return search.search_calls(text, functions)
