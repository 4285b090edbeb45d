"""The public names of evalkit. `evalkit` loads this module when one of them is first used."""

from __future__ import annotations

from evalkit.agents.contract import Reply
from evalkit.agents.instruction import load_instruction
from evalkit.agents.model_choice import aclose_shared
from evalkit.agents.registry import agent, mcp_server
from evalkit.agents.task import Task
from evalkit.checks.custom_checks import check
from evalkit.errors import EvalkitError, IncompleteCallError, SpecError, UsageError
from evalkit.functions.context_propagation import bind
from evalkit.gate.decision import decide
from evalkit.model.case import Case
from evalkit.model.run import GateDecision, Policy, Run
from evalkit.model.settings import HttpSettings, Settings
from evalkit.model.transcript import ModelRequest, ModelTurn, Transcript
from evalkit.model.verdict import Verdict
from evalkit.operators.builtin import operator
from evalkit.project import load_case
from evalkit.providers.table import open_provider
from evalkit.providers.turns import ScriptedProvider
from evalkit.reports.run_file import load_run
from evalkit.runner.judge import judge
from evalkit.runner.run_case import arun_case, run_case
from evalkit.runner.simulated_user import UserConversation
from evalkit.spec.load import case_from_dict
from evalkit.streaming import StreamAccumulator
from evalkit.textcalls import parse_text_calls
from evalkit.textcalls.parsed import ParsedText
from evalkit.wire.table import wire_api

IncompleteCall = IncompleteCallError

__all__ = [
    "Case",
    "EvalkitError",
    "GateDecision",
    "HttpSettings",
    "IncompleteCall",
    "ModelRequest",
    "ModelTurn",
    "ParsedText",
    "Policy",
    "Reply",
    "Run",
    "ScriptedProvider",
    "Settings",
    "SpecError",
    "StreamAccumulator",
    "Task",
    "Transcript",
    "UsageError",
    "UserConversation",
    "Verdict",
    "aclose_shared",
    "agent",
    "arun_case",
    "bind",
    "case_from_dict",
    "check",
    "decide",
    "judge",
    "load_case",
    "load_instruction",
    "load_run",
    "mcp_server",
    "open_provider",
    "operator",
    "parse_text_calls",
    "run_case",
    "wire_api",
]
