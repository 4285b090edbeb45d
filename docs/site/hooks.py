"""What MkDocs does with links that lead out of docs/: their words stay, since the files are not on the site."""

from __future__ import annotations

import re
from typing import Any

OUTSIDE = re.compile(r"\[([^\]]+)\]\((?:\.\./|examples/)[^)]*\)")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Return a page without links to files that are not on the site."""
    return OUTSIDE.sub(r"\1", markdown)
