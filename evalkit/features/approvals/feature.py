"""The hooks of approvals."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from msgspec import field

from evalkit.checks.call_key import CallKey
from evalkit.checks.expected_key import ExpectedKey
from evalkit.features.approvals.desk import ApprovalAnswers, ApprovalDesk, parse_approvals
from evalkit.features.approvals.keys import (
    FUNCTION_KEY,
    INPUT_KEY,
    ApprovalKey,
    ExpectedApprovalsKey,
    build_definitions,
)
from evalkit.features.approvals.records import NAME, Approval, get_answer, get_approval
from evalkit.functions.call_log import CallLog
from evalkit.functions.permissions import UNTRUSTED
from evalkit.hooks import CALL, EXPECTED, FUNCTION, INPUT, CaseDraft, CasePart, Feature, Place, RunPart
from evalkit.jsonvalue import JsonDict
from evalkit.lazy import LazyModule
from evalkit.records.transcript import DENIED, FunctionCall, Transcript
from evalkit.spec.case_reader import CaseKey
from evalkit.text.format import format_arguments

if TYPE_CHECKING:
    from evalkit.features.approvals import mutants
    from evalkit.hosts.casecheck.api import Mutant
else:
    mutants = LazyModule("evalkit.features.approvals.mutants")

_ROOM = 40


class CaseApprovals(CasePart, frozen=True):
    """The answers of the person whom a case plays."""

    answers: Mapping[str, ApprovalAnswers] = field(default_factory=dict)

    def start(self, log: CallLog) -> RunPart:
        return ApprovalDesk(self.answers, log.resolve_name)


class Approvals(Feature):
    """A person who approves calls."""

    name = NAME
    call_data = Approval

    def list_keys(self) -> Mapping[Place, Mapping[str, CaseKey | CallKey | ExpectedKey]]:
        return {
            INPUT: {"approvals": INPUT_KEY},
            FUNCTION: {"needs_approval": FUNCTION_KEY},
            CALL: {ApprovalKey.name: ApprovalKey()},
            EXPECTED: {ExpectedApprovalsKey.name: ExpectedApprovalsKey()},
        }

    def list_definitions(self, checks: Iterable[str]) -> Mapping[str, JsonDict]:
        return build_definitions()

    def compile(self, draft: CaseDraft) -> CasePart | None:
        said = draft.data.get("input", {}).get("approvals")
        if said is None:
            return None
        answers, problems = parse_approvals(said, draft.declarations)
        draft.reader.problems.extend(problems)
        if draft.is_untrusted:
            _refuse_real_calls(draft, answers)
        return CaseApprovals(answers)

    def start_late(self, log: CallLog) -> RunPart:
        return ApprovalDesk({}, log.resolve_name)

    def report_call(self, call: FunctionCall) -> str:
        approval = get_approval(call)
        if approval is None:
            return ""
        asked = ""
        if isinstance(approval.asked, dict) and isinstance(call.arguments, dict):
            changed = {name: value for name, value in approval.asked.items() if call.arguments.get(name) != value}
            asked = f", asked {format_arguments(changed, _ROOM)}" if changed else ""
        return f"approval: {approval.answer}{asked}"

    def trace_call(self, call: FunctionCall) -> Mapping[str, str]:
        answer = get_answer(call)
        return {} if answer is None else {"evalkit.call.approval": answer}

    def list_mutants(self) -> Mapping[str, str]:
        return {
            "deny_approval": "a person denies a call that was approved",
            "skip_approval": "a call is made for which nobody is asked",
        }

    def mutate(self, transcript: Transcript, index: int) -> Iterator[Mutant]:
        if transcript.calls[index].features.get(NAME) is None:
            return iter(())
        return mutants.generate_mutants(transcript, index)


def _refuse_real_calls(draft: CaseDraft, approvals: Mapping[str, ApprovalAnswers]) -> None:
    """Report approvals of what no mock answers: an own tool of the agent, or the next node of its graph, would run."""
    for name, answers in approvals.items():
        names = next(
            (
                {function.name, *function.aliases}
                for function in draft.declarations.values()
                if name in (function.name, *function.aliases)
            ),
            {name},
        )
        is_mocked = draft.mocks is not None and any(mocked in draft.mocks for mocked in names)
        if not is_mocked and any(item.answer != DENIED for item in answers.answers):
            problem = f"approvals.{name} is refused: no mock answers '{name}', so that the agent's own code would run; "
            draft.reader.add_problem(
                ("input", "approvals", name), f"{problem}{UNTRUSTED}; mock it, or deny", at_key=True
            )
