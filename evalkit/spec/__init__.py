"""From a file to a Case: the on-disk format, suites, and every problem of a file in one go.

`load_case` reads a file with the suites around it, `case_from_dict` takes parsed data under the same rules,
`find_cases` says which files below some folders are cases, and `case_schema` describes the format for editors.
Each name is imported when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from evalkit.lazily import imported_on_use

if TYPE_CHECKING:
    from evalkit.spec.discovery import FoundFile as FoundFile
    from evalkit.spec.discovery import find_cases as find_cases
    from evalkit.spec.loading import ExaminedCase as ExaminedCase
    from evalkit.spec.loading import case_from_dict as case_from_dict
    from evalkit.spec.loading import examine_case as examine_case
    from evalkit.spec.loading import load_case as load_case
    from evalkit.spec.schema import build_case_schema as build_case_schema

_HOMES = {
    "Examined": "loading",
    "FoundFile": "discovery",
    "case_from_dict": "loading",
    "case_schema": "schema",
    "examine_case": "loading",
    "find_cases": "discovery",
    "load_case": "loading",
}

__all__ = [*_HOMES]

__getattr__ = imported_on_use(__name__, _HOMES)
