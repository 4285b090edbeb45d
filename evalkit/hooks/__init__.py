"""The extension points: what a feature may do, when it is asked, and the list of features.

A feature is a class derived from `Feature`. Its methods are its hooks: each has a default that does nothing, gets what
its parameters say, and returns records. `BUILT_IN` says of each feature what may ask for it (a key, a file, an option),
so that none is imported before. Packages of others stand in the entry points of the group `evalkit.features`, each an
`Entry`. Later versions add fields to the records that hooks get and return, never parameters.

Two things are asked once for each case, and so go by no list of plugins: the case carries its `CasePart`s, a run its
`RunPart`s. A case without features pays for none.
"""

from evalkit.entries import BUILT_IN, CALL, CASE, EXPECTED, FUNCTION, INPUT, Code, Entry, Place
from evalkit.hooks.cases import CaseFileData, FileCase, FileCases
from evalkit.hooks.feature import Feature
from evalkit.hooks.loading import (
    compile_parts,
    expand,
    find_agent_form,
    find_code,
    find_key,
    find_owner,
    find_schema,
    inherit,
    iter_known,
    list_agent_forms,
    list_entries,
    list_expanding_keys,
    list_files,
    list_keys,
    list_own_keys,
    list_schemas,
    load_all,
    load_feature,
)
from evalkit.hooks.parts import CasePart, RunPart
from evalkit.hooks.records import (
    AgentForm,
    AgentRequest,
    CaseDraft,
    CaseReport,
    Forecast,
    Inherited,
    JudgedRun,
    PartJudgement,
    RunReport,
    Summary,
    Table,
)

__all__ = [
    "BUILT_IN",
    "CALL",
    "CASE",
    "EXPECTED",
    "FUNCTION",
    "INPUT",
    "AgentForm",
    "AgentRequest",
    "CaseDraft",
    "CaseFileData",
    "CasePart",
    "CaseReport",
    "Code",
    "Entry",
    "Feature",
    "FileCase",
    "FileCases",
    "Forecast",
    "Inherited",
    "JudgedRun",
    "PartJudgement",
    "Place",
    "RunPart",
    "RunReport",
    "Summary",
    "Table",
    "compile_parts",
    "expand",
    "find_agent_form",
    "find_code",
    "find_key",
    "find_owner",
    "find_schema",
    "inherit",
    "iter_known",
    "list_agent_forms",
    "list_entries",
    "list_expanding_keys",
    "list_files",
    "list_keys",
    "list_own_keys",
    "list_schemas",
    "load_all",
    "load_feature",
]
