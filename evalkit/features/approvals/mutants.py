"""Mutants of approvals: a call is denied, or made without a question."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from evalkit.features.approvals.records import get_answer, get_approval, put_approval
from evalkit.hosts.casecheck.api import Mutant, describe_made_call, replace_calls
from evalkit.records.transcript import APPLICATION, DENIED, MOCK, FunctionCall, Transcript

_DENIED_RESULT = {"error": {"type": "denied", "message": "a person denied this call"}}


def generate_mutants(transcript: Transcript, index: int) -> Iterator[Mutant]:
    call = transcript.calls[index]
    approval = get_approval(call)
    if approval is None:
        return
    description, answer = describe_made_call(transcript, index), approval.answer
    names = [asked.name for asked in transcript.calls if get_answer(asked) is not None]

    def build_mutant(kind: str, what: str, changed: FunctionCall) -> Mutant:
        calls = (*transcript.calls[:index], changed, *transcript.calls[index + 1 :])
        return Mutant(
            kind=kind, description=f"{description} is {what}", transcript=replace_calls(transcript, calls), call=index,
            for_call=({"approval": answer},), for_run=({"expected_approvals": names},),
        )  # fmt: skip

    if answer != DENIED:
        features = put_approval(call, replace(approval, answer=DENIED))
        denied = replace(call, features=features, outcome="error", result=_DENIED_RESULT, answered_by=APPLICATION)
        yield build_mutant("deny_approval", "denied", denied)
    executed_call = (
        replace(call, outcome="ok", result={"status": "done"}, answered_by=MOCK) if answer == DENIED else call
    )
    yield build_mutant(
        "skip_approval", "made, and nobody is asked", replace(executed_call, features=put_approval(call, None))
    )
