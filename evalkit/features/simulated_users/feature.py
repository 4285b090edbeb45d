"""The hooks of simulated users."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from evalkit.errors import KeyPath
from evalkit.features.simulated_users import results
from evalkit.features.simulated_users.keys import INPUT_KEY, describe_user_schemas
from evalkit.features.simulated_users.reading import read_user
from evalkit.features.simulated_users.records import KEY, MAX_TURNS, NAME, Simulation
from evalkit.features.simulated_users.user import ROLE, SimulatedUser
from evalkit.functions.agent_permissions import check_model
from evalkit.functions.call_log import CallLog
from evalkit.functions.targets import TargetError, check_form, find_callable
from evalkit.hooks import (
    INPUT,
    CaseDraft,
    CasePart,
    Feature,
    JudgedRun,
    Place,
    RunPart,
    RunReport,
    UserForecast,
)
from evalkit.jsonvalue import JsonDict
from evalkit.lazy import LazyModule
from evalkit.records.settings import Settings
from evalkit.records.transcript import Transcript
from evalkit.records.verdict import Reason
from evalkit.spec.case_reader import CaseKey
from evalkit.stats.accounting import SideUsage

if TYPE_CHECKING:
    from evalkit.agents import model_choice
    from evalkit.features.simulated_users import conversation
else:
    model_choice = LazyModule("evalkit.agents.model_choice")
    conversation = LazyModule("evalkit.features.simulated_users.conversation")

_EXAMPLE = "shop.users:answer"
_NEVER_STOPPED = "simulator_never_stopped"


class CaseUser(CasePart, frozen=True):
    """The user of a case."""

    user: SimulatedUser

    def start(self, log: CallLog) -> RunPart:
        return conversation.SimulatedConversation(self.user)

    def confirm(self, run: JudgedRun) -> Reason | None:
        """Return a reason where the user's model went on until it was stopped."""
        user = self.user
        if NAME not in run.transcript.features or user.max_turns_ok or not user.is_open_to_model:
            return None
        if results.read_simulation(run.transcript).ended_by != MAX_TURNS:
            return None
        message = (
            f"{ROLE}'s model did not end the conversation within {user.max_turns} messages (max_turns), and nothing "
            "else says whether the agent brought it to its end; write a rule under stop_when, or 'max_turns_ok: true'"
        )
        return Reason(code=_NEVER_STOPPED, message=message, place="input.user.max_turns")

    def foresee_user(self) -> UserForecast:
        return UserForecast(tuple(self.user.list_words()), is_open=self.user.player != "script")


class SimulatedUsers(Feature):
    """Users with a goal, a persona and facts."""

    name = NAME
    transcript_data = Simulation

    def list_keys(self) -> Mapping[Place, Mapping[str, CaseKey]]:
        return {INPUT: {KEY: INPUT_KEY}}

    def list_definitions(self, checks: Iterable[str]) -> Mapping[str, JsonDict]:
        return describe_user_schemas()

    def compile(self, draft: CaseDraft) -> CasePart | None:
        """Read the user. Its model and its callable are checked as those of the case are."""
        value = draft.data["input"].get(KEY)
        if value is None:
            return None
        user, problems = read_user(value, draft.functions, draft.data["input"])
        draft.reader.problems += problems
        keys = value if isinstance(value, dict) else {}
        path: KeyPath = ("input", KEY)
        check_model(draft.reader, (*path, "model"), keys.get("model"), draft.permissions, "--evalkit-simulator")
        target = keys.get("call")
        try:
            if isinstance(target, str) and not draft.check_targets:
                check_form(target, _EXAMPLE)
            elif isinstance(target, str) and not callable(find_callable(target, _EXAMPLE, draft.permissions)):
                raise TargetError(f"'{target}' is not callable")
        except TargetError as error:
            draft.reader.add_problem((*path, "call"), f"user.call: {error}")
        return None if user is None else CaseUser(user)

    def check_models(self, settings: Settings) -> None:
        model_choice.check_model(settings.simulator, settings, f"{ROLE}: ")

    def describe_models(self, settings: Settings) -> str:
        return f"{(settings.simulator or '').partition('?')[0]} plays simulated users that have no recording"

    def account(self, transcript: Transcript) -> SideUsage:
        return results.account(transcript)

    def describe_usage(self, total: SideUsage) -> str:
        return results.describe_usage(total)

    def report_run(self, transcript: Transcript) -> RunReport:
        return results.report_run(transcript)
