"""Everything that the runs of one case share, worked out once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from evalkit.agents.resolve import AgentUnderTest, resolve_agent
from evalkit.agents.settings import TaskSettings, merge_settings
from evalkit.errors import Location, PathProblem, Problem, SpecError, format_path
from evalkit.model.case import Case
from evalkit.model.settings import Settings


class CasePlan(Struct, frozen=True):
    """One case, ready to run: compiled mocks and expectation, the agent, the settings in force."""

    case: Case
    agent: AgentUnderTest
    settings: Settings
    task_settings: TaskSettings
    mocks: Any
    expectation: Any
    root: Path

    @property
    def is_graded(self) -> bool:
        """Whether a model is to grade anything of it."""
        if self.expectation is not None and self.expectation.graded is not None:
            return True
        turns = self.case.turns
        return bool(turns) and any(
            turn.expectation is not None and turn.expectation.graded is not None for turn in turns
        )


def plan_case(case: Case, agent: Any, settings: Settings) -> CasePlan:
    """Raises UnknownAgentError, and SpecError for a case built in code whose parts don't compile."""
    root = settings.root or _find_root(case)
    return CasePlan(
        case=case,
        agent=resolve_agent(case.agent if agent is None else agent, case=case, root=root),
        settings=settings if settings.root else replace(settings, root=root),
        task_settings=merge_settings(case.settings, settings),
        mocks=_compile_mocks(case) if case.mocks is None else case.mocks,
        expectation=_compile_expectation(case) if case.expectation is None else case.expectation,
        root=root,
    )


def _find_root(case: Case) -> Path:
    """The root below which a loaded case has its identity, whatever the current directory is now."""
    if case.path is not None and case.path.is_absolute() and case.path.as_posix().endswith(f"/{case.id}"):
        return case.path.parents[case.id.count("/")]
    return Path.cwd()


def _compile_mocks(case: Case) -> Any:
    from evalkit.functions.mocks.reader import parse_mocks

    mocks, problems = parse_mocks(
        case.input.get("mock_function_responses") or {},
        path=("input", "mock_function_responses"),
        declarations={function.name: function for function in case.functions},
        include=_refuse_include,
    )
    _raise_problems(case, problems)
    return mocks


def _refuse_include(name: str) -> Any:
    raise KeyError(f"a case built in code includes no files ('{name}')")


def _compile_expectation(case: Case) -> Any:
    if not case.expected_output and any(turn.expectation is not None for turn in case.turns):
        return None
    from evalkit.checks.compile import compile_expectation

    declarations = {function.name: function for function in case.functions}
    expectation, problems = compile_expectation(case.expected_output, declarations=declarations)
    _raise_problems(case, problems)
    return expectation


def _raise_problems(case: Case, problems: list[PathProblem]) -> None:
    if problems:
        raise SpecError(
            [
                Problem(Location(case.id or "case"), f"{format_path(problem.path)}: {problem.message}", problem.code)
                for problem in problems
            ]
        )
