"""Functions that an agent may call: declarations, mocks, the fake dispatcher that answers and records, patching.

Each name is imported when first used; and jsonschema, when a schema or value is beyond the everyday.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from evalkit.lazily import imported_on_use

if TYPE_CHECKING:
    from evalkit.functions.active import PatchedCase as PatchedCase
    from evalkit.functions.attempt import MockedError as MockedError
    from evalkit.functions.attempt import build_error_result as build_error_result
    from evalkit.functions.carrying import bind as bind
    from evalkit.functions.declarations import parse_declarations as parse_declarations
    from evalkit.functions.dispatcher import FakeDispatcher as FakeDispatcher
    from evalkit.functions.includes import IncludeError as IncludeError
    from evalkit.functions.includes import open_mock_files as open_mock_files
    from evalkit.functions.mockreader import parse_mocks as parse_mocks
    from evalkit.functions.mocks import MockSet as MockSet
    from evalkit.functions.offering import describe_functions as describe_functions
    from evalkit.functions.patching import patch_functions as patch_functions
    from evalkit.functions.violations import find_argument_names as find_argument_names
    from evalkit.functions.violations import find_argument_violations as find_argument_violations

_HOMES = {
    "FakeDispatcher": "dispatcher",
    "IncludeError": "includes",
    "MockSet": "mocks",
    "MockedError": "attempt",
    "PatchedCase": "active",
    "argument_names": "violations",
    "argument_violations": "violations",
    "bind": "carrying",
    "error_result": "attempt",
    "mock_files": "includes",
    "offered_functions": "offering",
    "parse_declarations": "declarations",
    "parse_mocks": "mockreader",
    "patched": "patching",
}

__all__ = [*_HOMES]

__getattr__ = imported_on_use(__name__, _HOMES)
