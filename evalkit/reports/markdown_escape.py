"""Text from agents inside Markdown: it shows, and does nothing.

GitHub's pages look for mentions, issue numbers and addresses in the rendered text, so escaping the Markdown is not
enough: a zero-width space stands inside what would become a link or notify somebody.
"""

from __future__ import annotations

import re
from html import escape

from evalkit.reports.hostile import visible, visible_lines

_SPACE = "&#8203;"
_PUNCTUATION = re.compile(r"([\\`*\[\]|~$]|(?<!\w)_|_(?!\w)|^[-+#=]|(?<=^\d)[.)](?= )|(?<=^\d\d)[.)](?= ))")
_LINKS = re.compile(r"(?<=@)|(?<=#)(?=\d)|(?<=:/)(?=/)|(?<=\bwww)(?=\.)|(?<=\bGH)(?=-\d)", re.IGNORECASE)


def inline(text: str, limit: int = 300) -> str:
    """`text` in one line of Markdown, cut to about `limit` characters: no markup, no HTML, no mention, no link."""
    return _PUNCTUATION.sub(r"\\\1", _plain(text, limit)).replace(_MARK, _SPACE)


def in_html(text: str, limit: int = 300) -> str:
    """The same inside an HTML element of one line, such as <summary>, where Markdown's own escapes would show."""
    return _plain(text, limit).replace(_MARK, _SPACE)


def code(text: str, limit: int = 300) -> str:
    """`text` as a code span, whose delimiters are longer than any run of backticks in it."""
    shown = _one_line(text, limit) or " "
    ticks = "`" * (_longest_run(shown) + 1)
    pad = " " if shown.startswith("`") or shown.endswith("`") else ""
    return f"{ticks}{pad}{shown}{pad}{ticks}"


def fenced(text: str, language: str = "text") -> str:
    """`text` as a code block that nothing in it can end."""
    shown = visible_lines(text)
    fence = "`" * max(3, _longest_run(shown) + 1)
    return f"{fence}{language}\n{shown}\n{fence}"


_MARK = "\x00"  # stands for the zero-width space while the rest is escaped; `visible` leaves none in a text


def _plain(text: str, limit: int) -> str:
    marked = _LINKS.sub(_MARK, _one_line(text, limit))
    return escape(marked, quote=False)


def _one_line(text: str, limit: int) -> str:
    cut = text[: limit + 1]
    shown = " ".join(visible(cut, keep="\n\t").split())
    return shown if len(text) <= limit else f"{shown[: limit - 1]}…"


def _longest_run(text: str) -> int:
    return max((len(run) for run in re.findall("`+", text)), default=0)
