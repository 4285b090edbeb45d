"""Grading: after the agent has ended, and only if all else holds, a model grades what the case has for it.

A run that fails without that is not graded: its verdict is known, and a grade would cost money. The grader has a
deadline of its own, as long as the agent's.

By quotes a grader says what decided: they must stand in the evidence that it was shown. A quote stands there as whole
words, by the folding of all text checks (case, whitespace and typography aside), in one text of the evidence or in its
JSON, as the grader saw it; dots stand for what it leaves out. What a grader makes up, or takes from elsewhere, does
not, and punctuation alone is no quote.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from evalkit.checks.evidence import extract_texts
from evalkit.errors import BudgetSpentError, EvalkitError, MissingCassetteError, ProviderError, StaleCassetteError
from evalkit.features.graders.grader import (
    Grader,
    build_grading_request,
    combine_votes,
    make_unreadable_error,
    read_grades,
    select_grader,
    unwrap_answer,
)
from evalkit.features.graders.records import OPERATOR, Grade, Grading, put_gradings
from evalkit.features.graders.rubric import Rubric
from evalkit.features.graders.values import OpenCriteria, Question
from evalkit.hooks import OpenRun
from evalkit.jsonvalue import JsonDict
from evalkit.operators.phrases import find_words, fold_text
from evalkit.records.case import Case
from evalkit.records.prices import compute_cost
from evalkit.records.settings import Settings
from evalkit.records.transcript import FunctionCall, ModelRequest, ModelTurn, RunFault, Transcript, Usage
from evalkit.text.format import format_value
from evalkit.text.redact import Redactor

_OUTDATED = (MissingCassetteError.code, StaleCassetteError.code)
MOST_VALUES = 100  # of a run, that a model grades: each is tokens


async def grade_run(run: OpenRun) -> Transcript:
    """Return the transcript with the grades of all that is open in a run. Raises BudgetSpentError."""
    settings = run.settings
    gradings = await _grade(run)
    outdated = any(grading.fault is not None and grading.fault.code in _OUTDATED for grading in gradings)
    if outdated and settings.record == "stale" and settings.grader is not None:
        gradings = await _grade(replace(run, settings=replace(settings, record="all")))
    return put_gradings(run.transcript, gradings)


async def _grade(run: OpenRun) -> list[Grading]:
    """Grade the values of `$judge`, and if these hold, the criteria of `judge`: one thing after another, up to the
    first that fails. Save the recording if all were answered.
    """
    values, criteria = _sort_open(run.open)
    try:
        grader = select_grader(run.case.id, run.number, run.settings, run.transcript.seed)
    except EvalkitError as error:
        places = [*([OPERATOR] if values else []), *(item.place for item in criteria)]
        return [Grading(place=place, fault=_build_fault(error)) for place in places]
    graded: list[Grading] = []
    holds = True
    # A value that is not met may lead to another pairing of calls, whose values are graded then.
    while holds and values:
        graded.append(await _grade_values(run, grader, values, sum(len(grading.grades) for grading in graded)))
        if graded[-1].fault is not None:
            return graded
        holds, still_open = run.judge(put_gradings(run.transcript, graded))
        values, criteria = _sort_open(still_open)
    for item in criteria if holds else ():
        graded.append(await _grade_criteria(run, grader, item))
        if graded[-1].fault is not None:
            return graded
    grader.save()
    return graded


def _sort_open(items: Iterable[object]) -> tuple[list[Question], list[OpenCriteria]]:
    """Return the values and the criteria, those of user turns first."""
    items = list(items)
    criteria = [item for item in items if isinstance(item, OpenCriteria)]
    criteria.sort(key=lambda item: (item.user_turn is None, item.user_turn))
    return [item for item in items if isinstance(item, Question)], criteria


async def _grade_values(run: OpenRun, grader: Grader, values: Sequence[Question], known: int) -> Grading:
    if known + len(values) > MOST_VALUES:
        message = f"more than {MOST_VALUES} values are for a model to grade; say it of fewer, or of a list as a whole"
        return Grading(place=OPERATOR, fault=RunFault(code="not_measured", message=message, measured=False))
    nested = [_nest(value) for value in values]
    evidence = {"values": {str(number): value for number, value in enumerate(nested, 1)}}
    criteria = [value.rubric for value in values]
    scope = "the value that has the number of the criterion, and nothing else"
    request = build_grading_request(criteria, scope, evidence, build_redactor(run.settings))
    grading = await ask_grader(grader, request, criteria, OPERATOR, run.settings, run.deadline_s)
    grades = [
        replace(grade, value=value, names=_list_names(question))
        for grade, value, question in zip(grading.grades, nested, values, strict=False)
    ]
    return replace(grading, grades=tuple(grades))


def _list_names(question: Question) -> tuple[str, ...]:
    return tuple(step for step in question.path if isinstance(step, str))


def _nest(question: Question) -> object:
    """Return the value in mappings by the names that lead to it, by which secrets are known."""
    value = question.value
    for name in reversed(_list_names(question)):
        value = {name: value}
    return value


async def _grade_criteria(run: OpenRun, grader: Grader, item: OpenCriteria) -> Grading:
    if item.problem:
        return Grading(place=item.place, fault=RunFault(code="unresolved_reference", message=item.problem))
    evidence = build_evidence(run.case, run.transcript, item.user_turn)
    scope = "the whole conversation" if run.case.turns or run.transcript.messages else "the whole run"
    if item.user_turn is not None:
        scope = "the last turn of the conversation"
    request = build_grading_request(item.criteria, scope, evidence, build_redactor(run.settings))
    return await ask_grader(grader, request, item.criteria, item.place, run.settings, run.deadline_s)


async def ask_grader(
    grader: Grader, request: ModelRequest, criteria: Sequence[Rubric], place: str, settings: Settings, deadline_s: float
) -> Grading:
    """Ask each member of a panel, one after the other. Raises BudgetSpentError."""
    usages: list[Usage | None] = []
    costs: list[float | None] = []
    ballots: list[tuple[Grade, ...]] = []
    fault: RunFault | None = None
    try:
        for member in grader.members:
            reply = await grader.turn(request, member, deadline_s)
            usages.append(reply.usage)
            costs.append(compute_cost(reply.usage, (reply.model, member.name), settings.price_list))
            ballots.append(read_grades(reply, criteria))
            _check_evidence(reply, ballots[-1], request)
    except BudgetSpentError:
        raise
    except EvalkitError as error:
        fault = _build_fault(error)
    except Exception as error:  # of a client, or of a provider that a user brings
        message = f"the grader raised {type(error).__name__}: {error}"
        fault = RunFault(code=ProviderError.code, message=message, measured=False)
    known_usages = [usage for usage in usages if usage is not None]
    known_costs = [cost for cost in costs if cost is not None]
    return Grading(
        place=place,
        grader=grader.name,
        cassette=grader.cassette,
        usage=sum(known_usages, Usage()) if known_usages and len(known_usages) == len(usages) else None,
        cost_usd=sum(known_costs) if known_costs and len(known_costs) == len(costs) else None,
        fault=fault,
        grades=()
        if fault is not None
        else tuple(
            combine_votes(rubric, grades, grader.members)
            for rubric, grades in zip(criteria, zip(*ballots, strict=True), strict=True)
        ),
    )


def _check_evidence(reply: ModelTurn, grades: Sequence[Grade], request: ModelRequest) -> None:
    """Raise UnreadableGradesError for a grade by a quote that is not in the evidence, or that is copied from there."""
    evidence = json.loads(request.messages[0]["text"])["evidence"]
    if not reply.calls and repeats_evidence(unwrap_answer(reply.text), evidence):
        raise make_unreadable_error(reply, "it repeats what stands in the evidence")
    for number, grade in enumerate(grades, 1):
        invented = find_invented_quote(grade.quotes, evidence)
        if invented is not None:
            raise make_unreadable_error(
                reply, f"criterion {number} is graded by what is not in the evidence, {format_value(invented)}"
            )


def build_redactor(settings: Settings) -> Redactor:
    """Return what takes the secrets out of a request."""
    return Redactor(settings.extra.get("secrets", ()), settings.extra.get("secret_keys", ()))


def _build_fault(error: EvalkitError) -> RunFault:
    return RunFault(code=error.code, message=str(error), measured=False)


def build_evidence(case: Case, transcript: Transcript, user_turn: int | None = None) -> JsonDict:
    """Build the evidence for the grader, as JSON data: the input, the calls with their results, the response.

    Of a conversation its user turns up to `user_turn`, each with its own calls and response.
    """
    users: Sequence[object] = [turn.user for turn in case.turns]
    if transcript.messages:
        users = [message.text for message in transcript.messages]
    if not users:
        return {"input": transcript.input, "calls": _list_calls(transcript.calls), "response": transcript.response}
    end = len(users) if user_turn is None else user_turn + 1
    conversation = [
        {
            "user": user,
            "calls": _list_calls(call for call in transcript.calls if call.user_turn == number),
            "response": transcript.responses[number] if number < len(transcript.responses) else "",
        }
        for number, user in enumerate(users[:end])
    ]
    return {"input": transcript.input, "conversation": conversation}


def _list_calls(calls: Iterable[FunctionCall]) -> list[JsonDict]:
    """Return the calls as JSON data. A failed call's result says how it failed."""
    return [{"name": call.name, "arguments": call.arguments, "result": call.result} for call in calls]


_AROUND = "\"' "  # a quote may be handed in with its quotation marks
_OMISSION = r"\s*[\[(]?(?:\.{3}|…)[\])]?\s*"
_TELLING = "LNS"  # letters, numbers and symbols: kinds of characters that say something


def find_invented_quote(quotes: Iterable[str], evidence: object) -> str | None:
    """Return the first quote that is not in the evidence; None if all of them are."""
    texts: list[str] = []
    layouts: list[str] = []
    for quote in quotes:
        if not texts:
            texts = [_join_dashes(text) for text in extract_texts(evidence)]
            layouts = [_join_dashes(fold_text(json.dumps(evidence, ensure_ascii=False, indent=i))) for i in (None, 2)]
        folded = _join_dashes(fold_text(quote)).strip(_AROUND)
        parts = [part for part in re.split(_OMISSION, folded) if part]
        is_telling = any(unicodedata.category(character)[0] in _TELLING for character in folded)
        is_found = any(find_words(text, folded) >= 0 for text in (*texts, *layouts))
        if not is_telling or not (is_found or any(_has_parts(text, parts) for text in texts)):
            return quote
    return None


def repeats_evidence(answer: str, evidence: object) -> bool:
    """Return whether all that a grader answered stands in a text of the evidence, whitespace aside: then it is no
    answer, and a text that the agent wrote may be made to look like one."""
    folded = "".join(fold_text(answer).split())
    return any(folded in "".join(text.split()) for text in extract_texts(evidence))


def _join_dashes(text: str) -> str:
    return text.replace("\u2014", "-").replace("\u2015", "-")


def _has_parts(text: str, parts: Sequence[str]) -> bool:
    """Return whether the parts follow each other in `text`."""
    for part in parts:
        start = find_words(text, part)
        if start < 0:
            return False
        text = text[start + len(part) :]
    return True
