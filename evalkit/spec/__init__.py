"""From a file to a Case: the on-disk format, suites, and every problem of a file in one go.

`load_case` reads a file with the suites around it, `case_from_dict` takes parsed data under the same rules,
`find_cases` says which files below some folders are cases, and `case_schema` describes the format for editors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from evalkit.lazily import imported_on_use
from evalkit.spec.discovery import FoundFile, find_cases
from evalkit.spec.loading import Examined, case_from_dict, examine_case, load_case

if TYPE_CHECKING:
    from evalkit.spec.schema import case_schema

__all__ = ["Examined", "FoundFile", "case_from_dict", "case_schema", "examine_case", "find_cases", "load_case"]

__getattr__ = imported_on_use(__name__, {"case_schema": "schema"})
