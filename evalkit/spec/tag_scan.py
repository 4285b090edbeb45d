"""A look at a case file for the little that must be known when it is collected: the tags by which it is selected.

Everything else, and whether the file is valid, waits until the case is loaded.
"""

from __future__ import annotations

import os
import re
from typing import Any

from evalkit.spec import value_readers as reading
from evalkit.spec.load import may_name_python
from evalkit.spec.source import EXTENDS
from evalkit.spec.suites import load_suites
from evalkit.spec.value_readers import CaseReader

_TAGS = "tags"
# A text that begins so is a block mapping whose keys all begin in the first column.
_FLUSH_MAPPING = rb"(?:(?:[ \t]*#[^\r\n]*|[ \t]*|---[ \t]*)\r?\n)*[A-Za-z_]"
# There, these begin a key that says what the tags are, or may say so: quoted, with an anchor, an alias, a merge.
_TELLING_KEYS = rb"\n(?:tags|extends|[\"'?&!*<])"  # beginning with one character: 25 times as fast
# What the keys that name Python code name; nothing if it stands in the next line.
_TARGETS = rb"(?:\$call|\$include|patch|exception)[\"']?[ \t]*:[ \t]*([^\r\n]*)"
_OLD_BREAK = rb"\r(?!\n)"
_ESCAPED = rb"\\[xuU]"


class TagScanner:
    """Looks at the files of one project. Suites are read once per folder."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self._root = os.path.abspath(root)
        self._suite_tags: dict[str, tuple[str, ...]] = {}
        self._targets: set[bytes] = set()

    def read_tags(self, file: str) -> tuple[str, ...] | None:
        """The tags of the case in `file` (absolute); None where only loading it tells, or should be done at once.

        That is the first case of a folder, and one that names Python code which none before it names: what cases and
        suites import is imported before any agent runs. Of a broken file, any tags that can be read are given.
        """
        folder = os.path.dirname(file)
        if folder not in self._suite_tags:
            self._suite_tags[folder] = _read_valid_tags(load_suites(folder, self._root).data.get(_TAGS))
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
        from evalkit.yamlfile.parse import ABSENT, read_key

        if EXTENDS.encode() in content or (re.search(_ESCAPED, content) and read_key(content, EXTENDS) is not ABSENT):
            return None
        own_tags = read_key(content, _TAGS)
        return self._suite_tags[folder] if own_tags is ABSENT else _read_valid_tags(own_tags)

    def _has_new_code(self, content: bytes) -> bool:
        targets = frozenset(re.findall(_TARGETS, content))
        is_new = b"" in targets or not targets <= self._targets
        self._targets |= targets
        return is_new


def _may_have_tags(content: bytes) -> bool:
    """Whether there may be a key that says what the tags are."""
    first = re.match(_FLUSH_MAPPING, content)
    if first is None or content.startswith((b"tags", b"extends"), first.end() - 1):
        return True
    return re.search(_TELLING_KEYS, content) is not None or (
        b"\r" in content and re.search(_OLD_BREAK, content) is not None
    )


def _read_valid_tags(value: Any) -> tuple[str, ...]:
    return reading.read_tags(CaseReader(), (_TAGS,), value)
