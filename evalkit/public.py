"""The public names of evalkit, and where they are: using one loads no more than its module.

They stand here twice, for type checkers and for Python; tests/test_layers.py compares the two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evalkit.agents.contract import Reply as Reply
    from evalkit.agents.instruction import load_instruction as load_instruction
    from evalkit.agents.model_choice import aclose_shared as aclose_shared
    from evalkit.agents.registry import agent as agent
    from evalkit.agents.task import Task as Task
    from evalkit.checks.custom_checks import check as check
    from evalkit.errors import EvalkitError as EvalkitError
    from evalkit.errors import IncompleteCallError
    from evalkit.errors import SpecError as SpecError
    from evalkit.errors import UsageError as UsageError
    from evalkit.features.mcp.servers import mcp_server as mcp_server
    from evalkit.features.simulated_users.players import UserConversation as UserConversation
    from evalkit.functions.context_propagation import bind as bind
    from evalkit.gate.decision import decide as decide
    from evalkit.hosts.reports.run_file import load_run as load_run
    from evalkit.models.providers.table import open_provider as open_provider
    from evalkit.models.providers.turns import ScriptedProvider as ScriptedProvider
    from evalkit.models.streaming import StreamAccumulator as StreamAccumulator
    from evalkit.operators.builtin import operator as operator
    from evalkit.project import load_case as load_case
    from evalkit.records.case import Case as Case
    from evalkit.records.run import GateDecision as GateDecision
    from evalkit.records.run import Policy as Policy
    from evalkit.records.run import Run as Run
    from evalkit.records.settings import HttpSettings as HttpSettings
    from evalkit.records.settings import Settings as Settings
    from evalkit.records.transcript import ModelRequest as ModelRequest
    from evalkit.records.transcript import ModelTurn as ModelTurn
    from evalkit.records.transcript import Transcript as Transcript
    from evalkit.records.verdict import Verdict as Verdict
    from evalkit.runner.collected_calls import judge as judge
    from evalkit.runner.run_case import arun_case as arun_case
    from evalkit.runner.run_case import run_case as run_case
    from evalkit.spec.load import case_from_dict as case_from_dict
    from evalkit.wire.table import wire_api as wire_api
    from evalkit.wire.text_calls import parse_text_calls as parse_text_calls
    from evalkit.wire.text_calls.parsed import ParsedText as ParsedText

    IncompleteCall = IncompleteCallError

PLACES = {
    "Case": "evalkit.records.case:Case",
    "EvalkitError": "evalkit.errors:EvalkitError",
    "GateDecision": "evalkit.records.run:GateDecision",
    "HttpSettings": "evalkit.records.settings:HttpSettings",
    "IncompleteCall": "evalkit.errors:IncompleteCallError",
    "ModelRequest": "evalkit.records.transcript:ModelRequest",
    "ModelTurn": "evalkit.records.transcript:ModelTurn",
    "ParsedText": "evalkit.wire.text_calls.parsed:ParsedText",
    "Policy": "evalkit.records.run:Policy",
    "Reply": "evalkit.agents.contract:Reply",
    "Run": "evalkit.records.run:Run",
    "ScriptedProvider": "evalkit.models.providers.turns:ScriptedProvider",
    "Settings": "evalkit.records.settings:Settings",
    "SpecError": "evalkit.errors:SpecError",
    "StreamAccumulator": "evalkit.models.streaming:StreamAccumulator",
    "Task": "evalkit.agents.task:Task",
    "Transcript": "evalkit.records.transcript:Transcript",
    "UsageError": "evalkit.errors:UsageError",
    "UserConversation": "evalkit.features.simulated_users.players:UserConversation",
    "Verdict": "evalkit.records.verdict:Verdict",
    "aclose_shared": "evalkit.agents.model_choice:aclose_shared",
    "agent": "evalkit.agents.registry:agent",
    "arun_case": "evalkit.runner.run_case:arun_case",
    "bind": "evalkit.functions.context_propagation:bind",
    "case_from_dict": "evalkit.spec.load:case_from_dict",
    "check": "evalkit.checks.custom_checks:check",
    "decide": "evalkit.gate.decision:decide",
    "judge": "evalkit.runner.collected_calls:judge",
    "load_case": "evalkit.project:load_case",
    "load_instruction": "evalkit.agents.instruction:load_instruction",
    "load_run": "evalkit.hosts.reports.run_file:load_run",
    "mcp_server": "evalkit.features.mcp.servers:mcp_server",
    "open_provider": "evalkit.models.providers.table:open_provider",
    "operator": "evalkit.operators.builtin:operator",
    "parse_text_calls": "evalkit.wire.text_calls:parse_text_calls",
    "run_case": "evalkit.runner.run_case:run_case",
    "wire_api": "evalkit.wire.table:wire_api",
}
