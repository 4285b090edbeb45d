"""Everything that the runs of one case share, worked out once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from evalkit.agents.resolution import AgentUnderTest, resolve_agent
from evalkit.agents.settings import TaskSettings, settings_in_force
from evalkit.errors import Location, PathProblem, Problem, SpecError, shown_path
from evalkit.model.case import Case
from evalkit.model.settings import Settings


class Plan(Struct, frozen=True):
    """One case, ready to run: compiled mocks and expectation, the agent, the settings in force."""

    case: Case
    agent: AgentUnderTest
    settings: Settings
    in_force: TaskSettings
    mocks: Any
    expectation: Any
    root: Path

    @property
    def is_graded(self) -> bool:
        """Whether a model is to grade anything of it."""
        if self.expectation is not None and self.expectation.graded is not None:
            return True
        turns = self.case.turns
        return bool(turns) and any(it.expectation is not None and it.expectation.graded is not None for it in turns)


def plan_case(case: Case, agent: Any, settings: Settings) -> Plan:
    """Raises UnknownAgentError, and SpecError for a case built in code whose parts don't compile."""
    root = settings.root or _root_of(case)
    return Plan(
        case=case,
        agent=resolve_agent(case.agent if agent is None else agent, case=case, root=root),
        settings=settings if settings.root else replace(settings, root=root),
        in_force=settings_in_force(case.settings, settings),
        mocks=_compiled_mocks(case) if case.mocks is None else case.mocks,
        expectation=_compiled_expectation(case) if case.expectation is None else case.expectation,
        root=root,
    )


def _root_of(case: Case) -> Path:
    """The root below which a loaded case has its identity, whatever the current directory is now."""
    if case.path is not None and case.path.is_absolute() and case.path.as_posix().endswith(f"/{case.id}"):
        return case.path.parents[case.id.count("/")]
    return Path.cwd()


def _compiled_mocks(case: Case) -> Any:
    from evalkit.functions.mockreader import parse_mocks

    mocks, problems = parse_mocks(
        case.input.get("mock_function_responses") or {},
        path=("input", "mock_function_responses"),
        declarations={function.name: function for function in case.functions},
        include=_no_include,
    )
    _refuse(case, problems)
    return mocks


def _no_include(name: str) -> Any:
    raise KeyError(f"a case built in code includes no files ('{name}')")


def _compiled_expectation(case: Case) -> Any:
    if not case.expected_output and any(turn.expectation is not None for turn in case.turns):
        return None
    from evalkit.checks.compiling import compile_expectation

    declarations = {function.name: function for function in case.functions}
    expectation, problems = compile_expectation(case.expected_output, declarations=declarations)
    _refuse(case, problems)
    return expectation


def _refuse(case: Case, problems: list[PathProblem]) -> None:
    if problems:
        raise SpecError(
            [
                Problem(Location(case.id or "case"), f"{shown_path(problem.path)}: {problem.message}", problem.code)
                for problem in problems
            ]
        )
