"""The base class of features: each method is a hook, with a default that does nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from evalkit.hooks.cases import CaseFileData, FileCases
from evalkit.hooks.records import (
    AgentForm,
    AgentRequest,
    CaseDraft,
    CaseReport,
    ChangedRuns,
    Comparison,
    EndedRun,
    Finding,
    Inherited,
    OpenRun,
    Options,
    RunReport,
    Summary,
    Table,
)

if TYPE_CHECKING:
    from evalkit.agents.contract import AgentUnderTest
    from evalkit.agents.remote.server import CallFunction, FunctionsEndpoint, ListFunctions
    from evalkit.entries import Place
    from evalkit.functions.call_log import CallLog
    from evalkit.gate.outcomes import GateEvidence
    from evalkit.hooks.parts import CasePart, RunPart, SessionPart
    from evalkit.hosts.lint.api import RuleFamily
    from evalkit.jsonvalue import JsonDict, JsonObject, JsonValue
    from evalkit.records.settings import Settings
    from evalkit.records.side_usage import SideUsage
    from evalkit.records.transcript import FunctionCall, Transcript


class Feature:
    """The base of features."""

    name: ClassVar[str]
    # What its data in records must be, as msgspec takes types: run files are checked by it when they are read.
    verdict_data: ClassVar[Any] = Any
    transcript_data: ClassVar[Any] = Any
    call_data: ClassVar[Any] = Any
    changed_runs: ClassVar[ChangedRuns | None] = None  # of one whose `SessionPart` has `again`

    # What `evalkit mutate` says of a case whose run has data of it: mutants are judged by the same data.
    about_mutants: ClassVar[str] = ""

    # Once, when something asks for it

    def list_keys(self) -> Mapping[Place, Mapping[str, Any]]:
        """Return its keys by place: a `CaseKey` at `CASE`, `INPUT` and `FUNCTION`, an `ExpectedKey`, a `CallKey`, an
        `Operator` at `VALUE`."""
        return {}

    def list_definitions(self, checks: Iterable[str]) -> Mapping[str, JsonDict]:
        """Return what the schemas of its keys refer to, by name, in a project with these checks of its own."""
        return {}

    def list_schemas(self) -> Mapping[str, Callable[[Iterable[str]], JsonDict]]:
        """Return what `evalkit schema KIND` prints, by kind; the functions get the names of a project's operators."""
        return {}

    def list_rules(self) -> RuleFamily:
        """Return its rules of lint. Its entry says `has_rules`."""
        raise NotImplementedError

    def configure(self, options: Options) -> SessionPart | None:
        """One of its options was given: return what that switches on. UsageError for a value that does not go."""
        return None

    # For each case that has something of it

    def expand(self, file: CaseFileData) -> FileCases:
        """List the cases of a file with one of `Entry.expanding_keys`. SpecError if that can't be: one case, broken."""
        raise NotImplementedError

    def inherit(self, folder: str, root: str) -> Inherited:
        """Read the feature's files that hold in `folder`."""
        return Inherited()

    def compile(self, draft: CaseDraft) -> CasePart | None:
        """Compile what the case says, or its folder; None if there is nothing."""
        return None

    def read_setting(self, key: str, value: object) -> JsonValue:
        """Check and convert the value of one of its `settings`. ValueError says what was expected, UsageError all."""
        raise NotImplementedError

    def list_agent_forms(self) -> Mapping[str, AgentForm]:
        """Return the forms of a mapping under `agent` that it builds agents of, by the key that tells them apart."""
        return {}

    def build_agent(self, request: AgentRequest) -> AgentUnderTest:
        """Build the agent that a mapping with one of its `agent_forms` describes. UnknownAgentError if it can't."""
        raise NotImplementedError

    def build_endpoint(self, list_functions: ListFunctions, call: CallFunction) -> FunctionsEndpoint:
        """Build what offers the functions of a run below its `endpoint`, in another protocol than evalkit's own."""
        raise NotImplementedError

    def start_late(self, log: CallLog) -> RunPart | None:
        """Take part in a run of a case that says nothing, where a declaration or an adapter asks for it."""
        return None

    def read_demands(self, options: Mapping[str, Any]) -> JsonDict:
        """Return what its `settings` in [tool.evalkit] demand of a run's gate, as fields of `Policy`."""
        return {}

    def check_models(self, settings: Settings) -> None:
        """Raise UsageError for models of its own that can't be asked. Connects to nothing."""

    def describe_models(self, settings: Settings) -> str:
        """Say what models of its own do in this run, in the line at its head: ``gemini:x grades``."""
        return ""

    async def grade(self, run: OpenRun) -> Transcript:
        """Decide what it left open of a run, for which all else holds: return the transcript with the answers.

        The run is judged again by them. A BudgetSpentError means that the run was not made; any other exception is an
        error of the case, as is what stays open.
        """
        raise NotImplementedError

    # Of one run. Asked of runs whose transcript has data of it

    def account(self, transcript: Transcript) -> SideUsage | None:
        """Return what models took that the feature asked: they are not the agent's."""
        return None

    def describe_usage(self, total: SideUsage) -> str:
        """Word the sum of all runs for a line at the end, with `total.describe()`; "" for no line."""
        return ""

    def report_run(self, transcript: Transcript) -> RunReport | None:
        """Return what reports say of the run."""
        return None

    def list_agents(self, data: Any) -> Iterable[str]:
        """Return the names of agents that its data of a run tells of, beside those of calls and of turns of models."""
        return ()

    def extract_turn(self, data: Any, user_turn: int) -> Any:
        """Return what of its data of a run belongs to one message of the user in a conversation."""
        return data

    # At the end. `data` is what `PartJudgement.data` was, as JSON

    def add_up(self, runs: Sequence[Any]) -> Any:
        """Return the data of a case from those of its runs: what is kept of it until the end."""
        return None

    def measure(self, run: EndedRun) -> JsonDict | None:
        """Measure what the gate is to know of a run besides: JSON data, which the run file keeps. Asked once, at the
        end of a session in which something of the feature was kept.
        """
        return None

    def decide(self, evidence: GateEvidence) -> Iterator[Finding]:
        """Yield what the feature demands of a run, and how it is met. `evidence.features` is what `measure` returned.

        A UsageError is a policy that makes no sense; any other exception leaves the gate unmeasured.
        """
        return iter(())

    def summarize(self, outcomes: Sequence[tuple[str, Any]], is_whole: bool) -> Summary | None:
        """Sum up the cases, each its id and what `add_up` returned. `is_whole`: no case was left out."""
        return None

    def compare_parts(self, parts: Sequence[GateEvidence]) -> Comparison:
        """Compare the parts of a run, the reference first. Its entry says `divides_runs`."""
        raise NotImplementedError

    def build_table(self, facts: Any) -> Table | None:
        """Return the table for reports of what `summarize` returned as facts."""
        return None

    def report_case(self, data: Any) -> CaseReport | None:
        """Return what reports say of one verdict."""
        return None

    def report_call(self, call: FunctionCall) -> str:
        """Return what a trace says of one call, in brackets: ``name: value``."""
        return ""

    def trace_call(self, call: FunctionCall) -> Mapping[str, str]:
        """Return the attributes of a call's span."""
        return {}

    def upgrade_changed_run(self, data: JsonObject) -> JsonObject:
        """Return the data of a changed run of version 1 with the keys of `ChangedRun`."""
        return data

    # Tests of cases

    def list_mutants(self) -> Mapping[str, str]:
        """Return the kinds of its mutants, each with what happens in them."""
        return {}

    def mutate(self, transcript: Transcript, index: int) -> Iterator[Any]:
        """Yield the mutants of call number `index`."""
        return iter(())
