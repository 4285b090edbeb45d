"""evalkit's own modules, and the larger ones that it needs, imported past pytest's assertion rewriting.

pytest rewrites every module of a distribution with a plugin in it. It would search, check and cache some two hundred
modules that hold no assertion of a test, a fifth of start-up; and where byte code is not written (containers that set
PYTHONDONTWRITEBYTECODE, the first run in CI) it would parse them all anew, which takes longer than the run. Of other
packages it asks for each module whether it might be a test: with fifty modules that takes a millisecond.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

import pytest

_PLAIN = ("evalkit.", "asyncio.", "yaml.")


class PlainFinder:
    """Answers for the modules of these packages alone, as the interpreter's own finder would."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        return PathFinder.find_spec(name, path, target) if name.startswith(_PLAIN) else None


def install_plain_finder(config: pytest.Config) -> None:
    """From now until the end of this pytest run."""
    finder = PlainFinder()
    sys.meta_path.insert(0, finder)
    config.add_cleanup(lambda: sys.meta_path.remove(finder))
