"""The key of `input` that names a recorded run."""

from __future__ import annotations

from evalkit.spec.case_reader import CaseKey, CaseReader

TRACE_KEY = CaseKey(
    CaseReader.read_anything,  # read before the case, as `names_file` says
    {"type": "string", "minLength": 1},
    "A file with a recorded run, which is judged instead of a run of the agent: spans, an export, a logged chat.",
    in_suite=False,
    names_file=True,
)
