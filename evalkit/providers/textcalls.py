"""Function calls that a model wrote as text, found and read; the prose around them is kept.

Shapes: the standard ``<function>{"name": ..., "parameters": {...}}</function>``; the function's name as tag or
attribute; ``<tool_call>`` (Hermes, Qwen); ``[TOOL_CALLS]`` (Mistral); ``<|python_tag|>`` and pythonic lists (Llama);
``<TOOL>name: "arg"</TOOL>``; ``name(arg=1)`` on a line of its own; fenced JSON; bare JSON. Without declarations names
are accepted in explicit envelopes only. Prose that mentions a tag is no call, what stands in ``<think>`` is no call,
and nothing is executed. Time is linear in the text: failed attempts spend a budget, and when it is gone the
search stops and says so.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from evalkit.providers.textcalls_found import ParsedText, Rejected, TextCall
from evalkit.providers.textcalls_names import Names
from evalkit.providers.textcalls_search import Search

__all__ = ["ParsedText", "Rejected", "TextCall", "parse_text_calls"]


def parse_text_calls(text: str, functions: Iterable[Any] | None = None) -> ParsedText:
    """Find the calls in a model's `text`.

    `functions`: declarations (Declaration, mappings with `name` and `parameters`, OpenAI's tool dicts, or plain names).
    With them only declared names are calls; without, only explicit envelopes are. Never raises on any text.
    """
    return Search(text, Names(list(functions) if functions is not None else None)).run()
