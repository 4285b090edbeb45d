"""The material of a trace: text with the name of a style. What a style looks like is known to `trace.paint` alone."""

from __future__ import annotations

Span = tuple[str, str]  # text, style
Line = tuple[Span, ...]


def join_spans(line: Line) -> str:
    """The words of a line, without paint and without trailing space."""
    return "".join(text for text, _ in line).rstrip()
