"""Grading: after the agent has ended, and only if all else holds, a model grades the criteria of `judge`.

Off the deterministic path. Nothing here is imported for a case without such criteria. A run that fails without them is
not graded: its verdict is known, and a grade would cost money. The grader has a deadline of its own, as long as the
agent's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from evalkit.agents.grader import Grader, grader_for
from evalkit.agents.grading import grading_request, read_grades
from evalkit.checks.graded import criteria_of
from evalkit.errors import (
    BudgetSpentError,
    EvalkitError,
    MissingCassetteError,
    ProviderError,
    StaleCassetteError,
    shown_path,
)
from evalkit.model.case import Declaration
from evalkit.model.prices import cost_of
from evalkit.model.redaction import Redactor
from evalkit.model.template import TemplateError
from evalkit.model.transcript import FunctionCall, Grading, RunFault, Transcript
from evalkit.model.verdict import PASSED, Verdict
from evalkit.pipeline.aliases import with_aliases
from evalkit.pipeline.judging import judge_run
from evalkit.pipeline.plan import Plan

_OUTDATED = (MissingCassetteError.code, StaleCassetteError.code)
SKIPPED = "not graded: only a run for which all else holds is"


class Question(Struct, frozen=True):
    """The criteria of one expectation, to be graded on what happened up to `user_turn`; None: on the whole."""

    place: str
    expectation: Any
    user_turn: int | None = None


async def judge_graded(plan: Plan, run: int, transcript: Transcript, declared: Iterable[Declaration] = ()) -> Verdict:
    """`judge_run`, with the grades of the run's criteria in the transcript."""
    declared = tuple(declared)
    questions = tuple(_questions(plan, declared))
    skipped = tuple(Grading(place=question.place, skipped=SKIPPED) for question in questions)
    verdict = judge_run(plan, replace(transcript, gradings=skipped), declared)
    if verdict.status != PASSED:
        return verdict
    try:
        gradings = await _graded(plan, run, transcript, questions)
    except BudgetSpentError as error:
        fault = RunFault(code=error.code, message=str(error), measured=False)
        return judge_run(plan, replace(transcript, gradings=skipped, fault=fault), declared)
    return judge_run(plan, replace(transcript, gradings=gradings), declared)


def _questions(plan: Plan, declared: Sequence[Declaration]) -> Iterator[Question]:
    """The user turns first, as they happened."""
    whole, turns = with_aliases(plan.case, plan.expectation, declared)
    for number, expectation in enumerate((*turns, whole)):
        if expectation is not None and expectation.graded is not None:
            user_turn = number if number < len(turns) else None
            yield Question(shown_path(expectation.graded.path), expectation, user_turn)


async def _graded(plan: Plan, run: int, transcript: Transcript, questions: Sequence[Question]) -> tuple[Grading, ...]:
    gradings = await _attempted(plan, run, transcript, questions)
    settings = plan.settings
    outdated = any(it.fault is not None and it.fault.code in _OUTDATED for it in gradings)
    if outdated and settings.record == "stale" and settings.grader is not None:
        again = replace(plan, settings=replace(settings, record="all"))
        gradings = await _attempted(again, run, transcript, questions)
    return gradings


async def _attempted(
    plan: Plan, run: int, transcript: Transcript, questions: Sequence[Question]
) -> tuple[Grading, ...]:
    """One question after another; what is recorded is written if all were answered."""
    try:
        grader = grader_for(plan.case.id, run, plan.settings)
    except EvalkitError as error:
        return tuple(Grading(place=question.place, fault=_fault(error)) for question in questions)
    gradings: list[Grading] = []
    for number, question in enumerate(questions):
        gradings.append(await _grading(plan, grader, transcript, question))
        if gradings[-1].fault is not None:
            return (*gradings, *(Grading(place=later.place, skipped=SKIPPED) for later in questions[number + 1 :]))
    grader.save()
    return tuple(gradings)


async def _grading(plan: Plan, grader: Grader, transcript: Transcript, question: Question) -> Grading:
    by: dict[str, Any] = {"place": question.place, "grader": grader.name, "cassette": grader.cassette}
    try:
        criteria = criteria_of(question.expectation, transcript, plan.case.input, question.user_turn)
    except TemplateError as error:
        return Grading(place=question.place, fault=RunFault(code="unresolved_reference", message=str(error)))
    extra = plan.settings.extra
    redact = Redactor(extra.get("secrets", ()), extra.get("secret_keys", ()))
    evidence = evidence_of(plan, transcript, question.user_turn)
    request = grading_request(criteria, _about(plan, question), evidence, redact)
    try:
        reply = await grader.turn(request, plan.in_force.deadline_s)
        by |= {"usage": reply.usage, "cost_usd": cost_of(reply.usage, (reply.model, grader.name), plan.settings.prices)}
        return Grading(grades=read_grades(reply, criteria), **by)
    except BudgetSpentError:
        raise
    except EvalkitError as error:
        return Grading(fault=_fault(error), **by)
    except Exception as error:  # of a client, or of a provider that a user brings
        fault = RunFault(code=ProviderError.code, message=f"the grader raised {type(error).__name__}: {error}")
        return Grading(fault=replace(fault, measured=False), **by)


def _fault(error: EvalkitError) -> RunFault:
    return RunFault(code=error.code, message=str(error), measured=False)


def evidence_of(plan: Plan, transcript: Transcript, user_turn: int | None = None) -> dict[str, Any]:
    """What the grader is shown, as JSON data: the input, the calls with what came back, the response.

    Of a conversation its user turns up to `user_turn`, each with its own calls and response.
    """
    turns = plan.case.turns
    if not turns:
        return {"input": transcript.input, "calls": _calls(transcript.calls), "response": transcript.response}
    end = len(turns) if user_turn is None else user_turn + 1
    conversation = [
        {
            "user": turn.user,
            "calls": _calls(call for call in transcript.calls if call.user_turn == number),
            "response": transcript.responses[number] if number < len(transcript.responses) else "",
        }
        for number, turn in enumerate(turns[:end])
    ]
    return {"input": transcript.input, "conversation": conversation}


def _about(plan: Plan, question: Question) -> str:
    if question.user_turn is not None:
        return "the last turn of the conversation"
    return "the whole conversation" if plan.case.turns else "the whole run"


def _calls(calls: Iterable[FunctionCall]) -> list[dict[str, Any]]:
    """A failed call's result says how it failed."""
    return [{"name": call.name, "arguments": call.arguments, "result": call.result} for call in calls]
