"""The two forms of the attack suite: a short one in every run of the tests, a long one with ``EVALKIT_ATTACK=long``."""

from __future__ import annotations

import os
from typing import TypeVar

T = TypeVar("T")
IS_LONG = os.environ.get("EVALKIT_ATTACK") == "long"


def choose(short: T, long: T) -> T:
    """Return what belongs to the form that is run."""
    return long if IS_LONG else short
