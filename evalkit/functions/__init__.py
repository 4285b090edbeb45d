"""Functions that an agent may call: declarations, mocks, the fake dispatcher that answers and records, patching.

Nothing heavy is imported here; jsonschema is, when a schema or value is beyond the everyday.
"""

from __future__ import annotations

from evalkit.functions.attempt import MockedError, error_result
from evalkit.functions.declarations import parse_declarations
from evalkit.functions.dispatcher import FakeDispatcher
from evalkit.functions.includes import IncludeError, mock_files
from evalkit.functions.mockreader import parse_mocks
from evalkit.functions.mocks import MockSet
from evalkit.functions.offering import offered_functions
from evalkit.functions.patching import PatchedCase, bind, patched, release
from evalkit.functions.violations import argument_names, argument_violations

__all__ = [
    "FakeDispatcher",
    "IncludeError",
    "MockSet",
    "MockedError",
    "PatchedCase",
    "argument_names",
    "argument_violations",
    "bind",
    "error_result",
    "mock_files",
    "offered_functions",
    "parse_declarations",
    "parse_mocks",
    "patched",
    "release",
]
