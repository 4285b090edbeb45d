"""Text from agents inside Markdown: it shows, and does nothing.

GitHub's pages look for mentions, issue numbers and addresses in the rendered text, so escaping the Markdown is not
enough: a zero-width space stands inside what would become a link or notify somebody.
"""

from __future__ import annotations

import re
from html import escape

from evalkit.reports.hostile import escape_controls, escape_lines

_SPACE = "&#8203;"
_PUNCTUATION = re.compile(r"([\\`*\[\]|~$]|(?<!\w)_|_(?!\w)|^[-+#=]|(?<=^\d)[.)](?= )|(?<=^\d\d)[.)](?= ))")
_LINKS = re.compile(r"(?<=@)|(?<=#)(?=\d)|(?<=:/)(?=/)|(?<=\bwww)(?=\.)|(?<=\bGH)(?=-\d)", re.IGNORECASE)


def escape_inline(text: str, limit: int = 300) -> str:
    """`text` in one line of Markdown, cut to about `limit` characters: no markup, no HTML, no mention, no link."""
    return _PUNCTUATION.sub(r"\\\1", _escape_plain(text, limit)).replace(_MARK, _SPACE)


def escape_for_html(text: str, limit: int = 300) -> str:
    """The same inside an HTML element of one line, such as <summary>, where Markdown's own escapes would show."""
    return _escape_plain(text, limit).replace(_MARK, _SPACE)


def format_code(text: str, limit: int = 300) -> str:
    """`text` as a code span, whose delimiters are longer than any run of backticks in it."""
    content = _to_one_line(text, limit) or " "
    ticks = "`" * (_measure_longest_run(content) + 1)
    pad = " " if content.startswith("`") or content.endswith("`") else ""
    return f"{ticks}{pad}{content}{pad}{ticks}"


def format_code_block(text: str, language: str = "text") -> str:
    """`text` as a code block that nothing in it can end."""
    content = escape_lines(text)
    fence = "`" * max(3, _measure_longest_run(content) + 1)
    return f"{fence}{language}\n{content}\n{fence}"


_MARK = "\x00"  # stands for the zero-width space while the rest is escaped; `visible` leaves none in a text


def _escape_plain(text: str, limit: int) -> str:
    masked_text = _LINKS.sub(_MARK, _to_one_line(text, limit))
    return escape(masked_text, quote=False)


def _to_one_line(text: str, limit: int) -> str:
    cut = text[: limit + 1]
    line = " ".join(escape_controls(cut, keep="\n\t").split())
    return line if len(text) <= limit else f"{line[: limit - 1]}…"


def _measure_longest_run(text: str) -> int:
    return max((len(run) for run in re.findall("`+", text)), default=0)
