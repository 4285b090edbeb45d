"""A hook of somebody else's feature raises: a case is an error, the gate not measured, or a line names the feature."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterable, Mapping
from types import FunctionType
from typing import Any

import pytest
from msgspec.structs import replace

from evalkit.agents.contract import AgentUnderTest, build_agent
from evalkit.api import AgentForm, AgentRequest, CaseKey, CaseReader, Options, Transcript
from evalkit.cli import main
from evalkit.entries import CASE, FUNCTION, Entry, Option
from evalkit.errors import FeatureError
from evalkit.functions.call_log import CallLog, PendingCall
from evalkit.hooks import CaseDraft, CasePart, Feature, JudgedRun, PartJudgement, RunPart, SessionPart, Summary, loading
from evalkit.hosts.lint.api import RuleFamily
from tests.features.test_hooks import Install, install

__all__ = ["install"]

TEXT = CaseKey(CaseReader.read_text, {"type": "string"}, "A word.")
ENTRY = Entry(
    name="manners",
    target="shop_manners:Manners",
    keys={CASE: ("manners",), FUNCTION: ("polite",)},
    file="manners.yaml",
    agent_forms=("says",),
    has_rules=True,
    has_schemas=("manners",),
    settings=("politeness",),
    options=(Option("manners", "be polite", "WORD"),),
)
CASE_ERROR, USAGE, NOT_MEASURED, LINE = "an error of the case", "no session", "the gate is not measured", "a line"
IN_SESSIONS: dict[type, dict[str, str]] = {
    Feature: {
        "list_keys": USAGE,
        "list_agent_forms": USAGE,
        "configure": USAGE,
        "read_setting": USAGE,
        "read_demands": USAGE,
        "inherit": CASE_ERROR,
        "compile": CASE_ERROR,
        "build_agent": CASE_ERROR,
        "build_endpoint": CASE_ERROR,
        "start_late": CASE_ERROR,
        "extract_turn": CASE_ERROR,
        "measure": NOT_MEASURED,
        "decide": NOT_MEASURED,
        "add_up": LINE,
        "summarize": LINE,
        "report_run": LINE,
        "report_case": LINE,
        "report_call": LINE,
        "list_agents": LINE,
    },
    CasePart: dict.fromkeys(("plan", "start", "judge", "confirm"), CASE_ERROR),
    RunPart: dict.fromkeys(
        ("join", "answer", "change_agent", "next_message", "save", "close", "finish", "find_unused"), CASE_ERROR
    ),
    SessionPart: {
        "prepare": CASE_ERROR,
        "launch": CASE_ERROR,
        "plan_changed_runs": CASE_ERROR,
        "check_selection": USAGE,
        "build_executor": USAGE,
        "get_circumstances": NOT_MEASURED,
        "collect": NOT_MEASURED,
        "list_doubts": NOT_MEASURED,
        "publish": NOT_MEASURED,
        "build_section": NOT_MEASURED,
        "describe": LINE,
    },
}
# Those of commands, which end with a line that names the feature, and of what needs more than a session of its own.
OF_COMMANDS = {
    "list_rules": "lint .",
    "list_definitions": "schema case",
    "foresee_user": "smoke scenarios",
    "forecast": "smoke scenarios",
    "list_mutants": "mutate scenarios --without nothing",
    "mutate": "mutate scenarios",
    "build_table": "report .evalkit/last-run.json --format markdown",
}
ELSEWHERE = {
    "expand", "list_schemas", "compare_parts", "grade", "account", "describe_usage", "trace_call",
    "upgrade_changed_run", "check_models", "describe_models", "is_current", "list_call_keys",
    "looks_at_arguments", "join",
}  # fmt: skip
STATUSES = {CASE_ERROR: 6, USAGE: 4, NOT_MEASURED: 6, LINE: 0}


def break_hook(cls: type, holder: type, hook: str, returned: object = None) -> Any:
    """Return `cls` with a hook that raises, or returns `returned`, if it is of `holder`."""
    if not issubclass(cls, holder):
        return cls

    def fail(*arguments: object) -> object:
        if returned is not None:
            return returned
        raise LookupError(f"no {hook} today")

    async def fail_later(*arguments: object) -> None:
        fail()

    broken = fail_later if inspect.iscoroutinefunction(getattr(cls, hook)) else fail
    members = {hook: broken, "__module__": __name__, **({"speaks": True} if hook == "next_message" else {})}
    options: dict[str, Any] = {"frozen": True} if holder is CasePart else {}
    metaclass: Any = type(cls)
    return metaclass(cls.__name__, (cls,), members, **options)


class Attention(RunPart):
    """It notes that it was there, in the run and in each call."""

    feature = "manners"

    def answer(self, call: PendingCall) -> None:
        call.features = {**call.features, "manners": "heard"}

    def finish(self, transcript: Transcript, expectations: object) -> Transcript:
        return replace(transcript, features={**transcript.features, "manners": "polite"})


def build_feature(holder: type, hook: str, returned: object = None) -> type[Feature]:
    """Return a feature that takes part in everything, and one hook of which raises."""
    run_part, session_part = (break_hook(cls, holder, hook, returned) for cls in (Attention, SessionPart))

    class Part(CasePart, frozen=True):
        def start(self, log: CallLog) -> Any:
            return None if hook == "start_late" else run_part()

        def judge(self, run: JudgedRun) -> PartJudgement:
            return PartJudgement(data="polite")

    class Manners(Feature):
        name = "manners"

        def list_keys(self) -> Mapping[Any, Mapping[str, Any]]:
            return {CASE: {"manners": TEXT}, FUNCTION: {"polite": TEXT}}

        def list_agent_forms(self) -> Mapping[str, AgentForm]:
            return {"says": AgentForm(keys={"says": TEXT})}

        def build_agent(self, request: AgentRequest) -> AgentUnderTest:
            return build_agent("says", lambda task: "thanks")

        def configure(self, options: Options) -> Any:
            return session_part()

        def read_setting(self, key: str, value: object) -> str:
            return str(value)

        def list_rules(self) -> RuleFamily:
            return RuleFamily((), lambda facts: iter(()))

        def list_schemas(self) -> Mapping[str, Any]:
            return {"manners": lambda operators: {}}

        def compile(self, draft: CaseDraft) -> Any:
            return break_hook(Part, holder, hook, returned)()

        def add_up(self, runs: Iterable[Any]) -> str:
            return "polite"

        def summarize(self, outcomes: object, is_whole: bool) -> Summary:
            return Summary(facts="polite")

    feature: type[Feature] = break_hook(Manners, holder, hook, returned)
    return feature


AGENT = """\
import evalkit

@evalkit.agent("guest")
async def guest(task):
    with task.act_as("front"), task.act_as("back"):
        await task.acall("check", id="A1")
    async with task.serve():
        return "thanks"
"""
CASE_FILE = """\
agent: {agent}
manners: please
functions: {{check: {{polite: very, parameters: {{type: object}}}}}}
input:
  turns: [{{user: hi, expected_output: {{response_contains: thanks}}}}]
  mock_function_responses: {{check: {{ok: true}}}}
expected_output: {{response_contains: thanks, expected_function_calls: [{{function_name: check}}]}}
"""


TURNS = "turns: [{{user: hi, expected_output: {{response_contains: thanks}}}}]"


def write_project(project: Any, text: str = CASE_FILE, agent: str = "guest") -> None:
    project.write("conftest.py", AGENT)
    project.write("pyproject.toml", '[tool.evalkit]\npoliteness = "much"\n')
    project.write("scenarios/manners.yaml", "word: please\n")
    project.write("scenarios/good_001.yaml", text.format(agent=agent))


def find_named(text: str, hook: str) -> list[str]:
    """Return the lines that name the feature, and what its hook raised."""
    return [line for line in text.splitlines() if re.search(f"feature 'manners' .*LookupError: no {hook} today", line)]


@pytest.mark.parametrize(
    ("holder", "hook", "outcome"),
    [(holder, hook, outcome) for holder, hooks in IN_SESSIONS.items() for hook, outcome in hooks.items()],
)
def test_in_a_session(install: Install, project: Any, holder: type, hook: str, outcome: str) -> None:
    entry = ENTRY._replace(endpoint="manners") if hook == "build_endpoint" else ENTRY
    install(("shop", entry), cls=build_feature(holder, hook))
    spoken = CASE_FILE.replace(TURNS, "message: hi")
    write_project(
        project,
        spoken if hook == "next_message" else CASE_FILE,
        "{says: thanks}" if hook == "build_agent" else "guest",
    )
    result = project.run("--evalkit-manners=please", "--evalkit-trace=all", "--evalkit-html=run.html")
    said = "\n".join([*result.outlines, *result.errlines])
    assert result.ret == STATUSES[outcome], said
    assert find_named(said, hook), said
    assert "INTERNALERROR" not in said
    assert "Traceback" not in said
    if outcome == CASE_ERROR:
        assert project.statuses() == {"good_001": "error"}


@pytest.mark.parametrize(
    ("holder", "hook"),
    [
        (Feature, "configure"),
        (Feature, "summarize"),
        (Feature, "report_run"),
        (CasePart, "plan"),
        (CasePart, "judge"),
        (RunPart, "finish"),
        (SessionPart, "prepare"),
        (SessionPart, "launch"),
        (SessionPart, "get_circumstances"),
    ],
)
def test_what_a_hook_returns_is_of_its_type(install: Install, project: Any, holder: type, hook: str) -> None:
    install(("shop", ENTRY), cls=build_feature(holder, hook, returned=object()))
    write_project(project)
    result = project.run("--evalkit-manners=please", "--evalkit-trace=all")
    said = "\n".join([*result.outlines, *result.errlines])
    assert result.ret == STATUSES[IN_SESSIONS[holder][hook]], said
    assert re.search("feature 'manners' .*TypeError: ", said), said


@pytest.mark.parametrize(("hook", "command"), OF_COMMANDS.items())
def test_in_a_command(
    install: Install,
    project: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    hook: str,
    command: str,
) -> None:
    holder = CasePart if hasattr(CasePart, hook) else Feature
    install(("shop", ENTRY), cls=build_feature(holder, hook))
    write_project(project)
    project.run()
    monkeypatch.setattr(sys, "argv", ["evalkit", *command.split()])
    capsys.readouterr()
    with pytest.raises(SystemExit) as left:
        main()
    said = capsys.readouterr()
    assert left.value.code == (0 if hook in ("build_table", "describe_usage") else 4), said
    assert find_named(said.out + said.err, hook), said


def test_the_schema_of_a_file(install: Install) -> None:
    install(("shop", ENTRY), cls=build_feature(Feature, "list_schemas"))
    with pytest.raises(FeatureError, match="LookupError: no list_schemas today"):
        loading.find_schema("manners")


def test_the_hooks_are_all() -> None:
    known = {hook for hooks in IN_SESSIONS.values() for hook in hooks} | OF_COMMANDS.keys() | ELSEWHERE
    members = [item for cls in (Feature, CasePart, RunPart, SessionPart) for item in vars(cls).items()]
    assert known == {name for name, value in members if isinstance(value, FunctionType) and not name.startswith("_")}
