"""The versions of a framework whose hooks an adapter knows."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, version

from msgspec import Struct


class KnownVersions(Struct, frozen=True):
    """The versions of a framework's `package`, from `first` to before `end`, whose hooks the adapter knows to tell of
    every turn and call."""

    package: str
    first: tuple[int, int]
    end: tuple[int, int]

    def find_unknown(self) -> str | None:
        """Return package and version of a framework that is installed in another version."""
        try:
            installed = version(self.package)
        except PackageNotFoundError:  # from a folder of its own
            return None
        major, minor, *_ = [*map(int, re.findall(r"\d+", installed)), 0, 0]
        return None if self.first <= (major, minor) < self.end else f"{self.package} {installed}"
