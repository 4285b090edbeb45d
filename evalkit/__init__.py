"""evalkit: the pytest plugin that tells whether a tool-calling LLM agent still works.

One sentence is the architecture, and the folders repeat it::

    YAML file -> Case -> Transcript -> Verdict -> reports and gate

`spec` loads a file into a Case, `pipeline` runs the agent and has `checks` judge its Transcript into a Verdict,
`reports` and `gate` read Verdicts. Importing this package loads nothing heavy: each name is imported when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evalkit.agents import Reply as Reply
    from evalkit.agents import Task as Task
    from evalkit.agents import agent as agent
    from evalkit.agents import load_instruction as load_instruction
    from evalkit.checks import check as check
    from evalkit.errors import EvalkitError as EvalkitError
    from evalkit.errors import IncompleteCallError
    from evalkit.errors import SpecError as SpecError
    from evalkit.errors import UsageError as UsageError
    from evalkit.functions import bind as bind
    from evalkit.gate import decide as decide
    from evalkit.model.case import Case as Case
    from evalkit.model.run import GateDecision as GateDecision
    from evalkit.model.run import Policy as Policy
    from evalkit.model.run import Run as Run
    from evalkit.model.settings import HttpSettings as HttpSettings
    from evalkit.model.settings import Settings as Settings
    from evalkit.model.transcript import ModelRequest as ModelRequest
    from evalkit.model.transcript import ModelTurn as ModelTurn
    from evalkit.model.transcript import Transcript as Transcript
    from evalkit.model.verdict import Verdict as Verdict
    from evalkit.pipeline import arun_case as arun_case
    from evalkit.pipeline import judge as judge
    from evalkit.pipeline import run_case as run_case
    from evalkit.providers import ScriptedProvider as ScriptedProvider
    from evalkit.providers import open_provider as open_provider
    from evalkit.providers.stream import StreamAccumulator as StreamAccumulator
    from evalkit.providers.textcalls import ParsedText as ParsedText
    from evalkit.providers.textcalls import parse_text_calls as parse_text_calls
    from evalkit.reports import load_run as load_run

    IncompleteCall = IncompleteCallError
    from evalkit.operators import operator as operator
    from evalkit.spec import case_from_dict as case_from_dict
    from evalkit.spec import load_case as load_case

__version__ = "0.1.0"

_HOMES = {
    "Case": "evalkit.model.case",
    "EvalkitError": "evalkit.errors",
    "GateDecision": "evalkit.model.run",
    "HttpSettings": "evalkit.model.settings",
    "IncompleteCall": "evalkit.errors:IncompleteCallError",
    "ModelRequest": "evalkit.model.transcript",
    "ModelTurn": "evalkit.model.transcript",
    "ParsedText": "evalkit.providers.textcalls",
    "Policy": "evalkit.model.run",
    "Reply": "evalkit.agents",
    "Run": "evalkit.model.run",
    "ScriptedProvider": "evalkit.providers",
    "Settings": "evalkit.model.settings",
    "SpecError": "evalkit.errors",
    "StreamAccumulator": "evalkit.providers.stream",
    "Task": "evalkit.agents",
    "Transcript": "evalkit.model.transcript",
    "UsageError": "evalkit.errors",
    "Verdict": "evalkit.model.verdict",
    "agent": "evalkit.agents",
    "bind": "evalkit.functions",
    "arun_case": "evalkit.pipeline",
    "check": "evalkit.checks",
    "case_from_dict": "evalkit.spec",
    "decide": "evalkit.gate",
    "judge": "evalkit.pipeline",
    "load_case": "evalkit.spec",
    "load_instruction": "evalkit.agents",
    "load_run": "evalkit.reports",
    "open_provider": "evalkit.providers",
    "operator": "evalkit.operators",
    "parse_text_calls": "evalkit.providers.textcalls",
    "run_case": "evalkit.pipeline",
}

__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'evalkit' has no attribute {name!r}")
    from importlib import import_module

    module, _, attribute = home.partition(":")
    value = getattr(import_module(module), attribute or name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
