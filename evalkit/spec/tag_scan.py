"""Tags of case files, read at collection without loading the cases: `-m` selects by them.

All else, and whether the file is valid, waits until the case is loaded.
"""

from __future__ import annotations

import os
import re

from evalkit.spec.case_reader import CaseReader
from evalkit.spec.load import may_name_python
from evalkit.spec.source import EXTENDS
from evalkit.spec.suites import load_suites
from evalkit.yamlfile.parse import ABSENT, read_key

_TAGS = "tags"
# A text that begins so is a block mapping whose keys all begin in the first column.
_FLUSH_MAPPING = rb"(?:(?:[ \t]*#[^\r\n]*|[ \t]*|---[ \t]*)\r?\n)*[A-Za-z_]"
# In it, keys that give the tags, or may give them, begin so: quoted, with an anchor, an alias, a merge.
_TELLING_KEYS = rb"\n(?:tags|extends|[\"'?&!*<])"  # beginning with one character: 25 times as fast
# The values of keys that name Python code; empty if the value stands in the next line.
_TARGETS = rb"(?:\$call|\$include|patch|exception)[\"']?[ \t]*:[ \t]*([^\r\n]*)"
_OLD_BREAK = rb"\r(?!\n)"
_ESCAPED = rb"\\[xuU]"


class TagScanner:
    """Reader of the tags of one project's files. Suites are read once per folder."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self._root = os.path.abspath(root)
        self._suite_tags: dict[str, tuple[str, ...]] = {}
        self._targets: set[bytes] = set()

    def read_tags(self, file: str) -> tuple[str, ...] | None:
        """Return the tags of the case in `file` (absolute); None if the case must be loaded now.

        That is so where only loading tells (escapes, `extends`), for the first case of a folder, and for a case that
        names Python code which no case before it names: such code is imported before any agent runs. Of a broken file
        the tags that can be read are returned.
        """
        folder = os.path.dirname(file)
        if folder not in self._suite_tags:
            self._suite_tags[folder] = _read_tags(load_suites(folder, self._root).data.get(_TAGS))
            return None
        try:
            with open(file, "rb", buffering=0) as opened:
                content = opened.read()
        except OSError:
            return ()
        if may_name_python(content) and self._has_new_code(content):
            return None
        if not _may_have_tags(content):
            return self._suite_tags[folder]
        if EXTENDS.encode() in content or (re.search(_ESCAPED, content) and read_key(content, EXTENDS) is not ABSENT):
            return None
        own_tags = read_key(content, _TAGS)
        return self._suite_tags[folder] if own_tags is ABSENT else _read_tags(own_tags)

    def _has_new_code(self, content: bytes) -> bool:
        targets = frozenset(re.findall(_TARGETS, content))
        is_new = b"" in targets or not targets <= self._targets
        self._targets |= targets
        return is_new


def _may_have_tags(content: bytes) -> bool:
    """Tell whether the file may have a key that gives its tags."""
    first = re.match(_FLUSH_MAPPING, content)
    if first is None or content.startswith((b"tags", b"extends"), first.end() - 1):
        return True
    return re.search(_TELLING_KEYS, content) is not None or (
        b"\r" in content and re.search(_OLD_BREAK, content) is not None
    )


def _read_tags(value: object) -> tuple[str, ...]:
    return CaseReader().read_tags((_TAGS,), value)
