"""HTML mail as the text that its reader sees."""

from __future__ import annotations

import re
from html.parser import HTMLParser

_BREAKS = {"p", "div", "br", "li", "tr", "table", "ul", "ol", "h1", "h2", "h3", "hr", "blockquote", "body"}
_CELLS = {"td", "th"}
_UNSEEN = {"head", "style", "script", "title", "template"}
_VOID = {"br", "hr", "img", "meta", "link", "input", "col", "wbr", "area", "base", "source"}
_LOOKS_LIKE_HTML = re.compile(r"<(?:!doctype html|html|body|div|p|br|table|blockquote|span)\b[^<>]*>", re.IGNORECASE)
_HIDDEN = re.compile(
    r"display\s*:\s*none|visibility\s*:\s*hidden|font-size\s*:\s*0(?:\D|$)|opacity\s*:\s*0(?:;|$)", re.I
)


def looks_like_html(body: str) -> bool:
    """Whether `body` holds a tag that mail programs write and people do not."""
    return _LOOKS_LIKE_HTML.search(body) is not None


def html_to_text(body: str) -> str:
    """The visible text, one line per block; quotes (`blockquote`) get the ``> `` that plain mail has.

    Text that the style sheet hides is left out: the customer does not see it, so it isn't the customer's word.
    """
    reader = _Reader()
    reader.feed(body)
    reader.close()
    return reader.text()


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._lines: list[str] = [""]
        self._open: list[tuple[str, bool]] = []  # every open element, and whether its text is unseen
        self._quotes = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "blockquote":
            self._quotes += 1
        if tag in _BREAKS:
            self._new_line()
        elif tag in _CELLS and self._lines[-1].strip("> "):
            self._lines[-1] += " "
        if tag not in _VOID:
            unseen = tag in _UNSEEN or "hidden" in given or bool(_HIDDEN.search(given.get("style") or ""))
            self._open.append((tag, unseen))

    def handle_endtag(self, tag: str) -> None:
        if tag in _BREAKS:
            self._new_line()
        if tag == "blockquote":
            self._quotes = max(0, self._quotes - 1)
            self._new_line()
        for index in range(len(self._open) - 1, -1, -1):
            if self._open[index][0] == tag:
                del self._open[index:]
                return

    def handle_data(self, data: str) -> None:
        if not any(unseen for _, unseen in self._open):
            self._lines[-1] += re.sub(r"[ \t\r\n]+", " ", data)

    def _new_line(self) -> None:
        self._lines.append("> " * self._quotes)

    def text(self) -> str:
        lines = [line.rstrip() for line in self._lines]
        kept = [line for line in lines if line.strip("> ")]
        return "\n".join(line if line.startswith(">") else line.strip() for line in kept)
