"""A look at a case file for the little that must be known when it is collected: the tags by which it is selected.

Everything else, and whether the file is valid, waits until the case is loaded.
"""

from __future__ import annotations

import os
import re
from typing import Any

from evalkit.spec import reading
from evalkit.spec.loading import names_python
from evalkit.spec.reading import CaseReader
from evalkit.spec.source import EXTENDS
from evalkit.spec.suites import suites_of

_TAGS = "tags"
# A text that begins so is a block mapping whose keys all begin in the first column.
_FLUSH = rb"(?:(?:[ \t]*#[^\r\n]*|[ \t]*|---[ \t]*)\r?\n)*[A-Za-z_]"
# There, these begin a key that says what the tags are, or may say so: quoted, with an anchor, an alias, a merge.
_TELLING = rb"\n(?:tags|extends|[\"'?&!*<])"  # beginning with one character: 25 times as fast
# What the keys that name Python code name; nothing if it stands in the next line.
_TARGETS = rb"(?:\$call|\$include|patch|exception)[\"']?[ \t]*:[ \t]*([^\r\n]*)"
_OLD_BREAK = rb"\r(?!\n)"
_ESCAPED = rb"\\[xuU]"


class Glances:
    """Looks at the files of one project. Suites are read once per folder."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self._root = os.path.abspath(root)
        self._of_suites: dict[str, tuple[str, ...]] = {}
        self._targets: set[bytes] = set()

    def tags(self, file: str) -> tuple[str, ...] | None:
        """The tags of the case in `file` (absolute); None where only loading it tells, or should be done at once.

        That is the first case of a folder, and one that names Python code which none before it names: what cases and
        suites import is imported before any agent runs. Of a broken file, any tags that can be read are given.
        """
        folder = os.path.dirname(file)
        if folder not in self._of_suites:
            self._of_suites[folder] = _valid(suites_of(folder, self._root).data.get(_TAGS))
            return None
        try:
            with open(file, "rb", buffering=0) as opened:
                content = opened.read()
        except OSError:
            return ()
        if names_python(content) and self._names_new_code(content):
            return None
        if not _may_tell(content):
            return self._of_suites[folder]
        from evalkit.yamlfile.peeking import ABSENT, peek

        if EXTENDS.encode() in content or (re.search(_ESCAPED, content) and peek(content, EXTENDS) is not ABSENT):
            return None
        own = peek(content, _TAGS)
        return self._of_suites[folder] if own is ABSENT else _valid(own)

    def _names_new_code(self, content: bytes) -> bool:
        found = frozenset(re.findall(_TARGETS, content))
        is_new = b"" in found or not found <= self._targets
        self._targets |= found
        return is_new


def _may_tell(content: bytes) -> bool:
    """Whether there may be a key that says what the tags are."""
    first = re.match(_FLUSH, content)
    if first is None or content.startswith((b"tags", b"extends"), first.end() - 1):
        return True
    return re.search(_TELLING, content) is not None or (b"\r" in content and re.search(_OLD_BREAK, content) is not None)


def _valid(value: Any) -> tuple[str, ...]:
    return reading.tags(CaseReader(), (_TAGS,), value)
