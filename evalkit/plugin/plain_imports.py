"""evalkit's own modules, and the larger ones that it needs, imported past pytest's assertion rewriting.

pytest rewrites every module of a distribution with a plugin in it. It would search, check and cache some two hundred
modules that hold no assertion of a test, a fifth of start-up; and where byte code is not written (containers that set
PYTHONDONTWRITEBYTECODE, the first run in CI) it would parse them all anew, which takes longer than the run. Of other
packages it asks for each module whether it might be a test: with fifty modules that takes a millisecond.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import spec_from_file_location
from types import ModuleType

import pytest

_PLAIN = ("evalkit.", "asyncio.", "yaml.")


class PlainFinder:
    """Answers for the modules of these packages alone, as the interpreter's own finder would. That one looks for what
    is compiled first, and lists folders; most of evalkit's modules are a file of that name, which is quicker found.
    """

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if not name.startswith(_PLAIN):
            return None
        if path and name.startswith("evalkit."):
            file = os.path.join(path[0], f"{name.rpartition('.')[2]}.py")
            if os.path.isfile(file):
                return spec_from_file_location(name, file, loader=SourceFileLoader(name, file))
        return PathFinder.find_spec(name, path, target)


def import_plainly(config: pytest.Config) -> None:
    """From now until the end of this pytest run."""
    finder = PlainFinder()
    sys.meta_path.insert(0, finder)
    config.add_cleanup(lambda: sys.meta_path.remove(finder))
