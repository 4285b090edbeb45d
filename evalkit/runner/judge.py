"""From a transcript to a verdict: the checks' judgement, the faults of the run, and a line number for each reason."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import date

from msgspec.structs import replace

from evalkit.checks.compile import compile_expectation
from evalkit.checks.expectation import Judgement
from evalkit.errors import (
    BudgetSpentError,
    EvalkitError,
    Location,
    PathProblem,
    Problem,
    SpecError,
    UsageError,
    did_you_mean,
    format_path,
)
from evalkit.functions.declarations import find_argument_violations, parse_declarations
from evalkit.jsonvalue import MAX_DEPTH, JsonObject, to_json_safe
from evalkit.records.case import Case, Declaration, Repeat
from evalkit.records.mcp_names import is_offered_as
from evalkit.records.transcript import ANSWERERS, CHANNELS, MOCK, FunctionCall, RunFault, Transcript
from evalkit.records.verdict import ERROR, FAILED, NOT_RUN, PASSED, Reason, Verdict
from evalkit.runner.demands import compile_demands, judge_transcript, locate_reason
from evalkit.runner.run_state import CasePlan
from evalkit.stats.pass_rates import settled

# Codes of refused calls: an agent that breaks down after one failed because of the call.
REFUSED_CALLS = frozenset({"unmocked_call", "unknown_function"})
# Codes of agents that broke down: they raised, or their process did not answer in the agreed form.
BREAKDOWNS = frozenset({"agent_raised", "crashed", "invalid_reply"})


def judge_run(plan: CasePlan, transcript: Transcript, declared: Sequence[Declaration] = ()) -> Verdict:
    """Return the verdict of one run, in which `declared` were declared. Without budget left, the run was not made."""
    case = plan.case
    if transcript.fault is not None and transcript.fault.code == BudgetSpentError.code:
        reason = Reason(code=transcript.fault.code, message=transcript.fault.message)
        return build_verdict(case, NOT_RUN, (reason,), transcript)
    judgement = judge_transcript(compile_demands(case, plan.expectation, declared), transcript)
    unused: tuple[Reason, ...] = ()
    if plan.task_settings.strict_mocks and judgement.status != ERROR:
        place = "input.mock_function_responses"
        unused = tuple(
            Reason(code="unused_mock", message=f"{mock} (strict_mocks is on)", place=place)
            for mock in transcript.unused_mocks
        )
    reasons = judgement.reasons
    if transcript.fault is not None and transcript.fault.code in BREAKDOWNS:  # which refused calls explain
        reasons = tuple(sorted(reasons, key=lambda reason: reason.code not in REFUSED_CALLS))
    reasons = tuple(locate_reason(case, reason) for reason in (*reasons, *unused))
    return build_verdict(case, FAILED if unused else judgement.status, reasons, transcript, judgement)


def check_quarantine(case: Case) -> tuple[bool, str | None]:
    """Return whether skip and xfail are in force, and the warning to give if they have expired."""
    if case.until is None or (case.skip is None and case.xfail is None):
        return True, None
    if date.today() < date.fromisoformat(case.until):
        return True, None
    kind = "skip" if case.skip is not None else "xfail"
    return False, f"'{kind}' expired on {case.until}: the case counts again; fix it, or set a later 'until'"


def apply_quarantine(case: Case, verdict: Verdict) -> Verdict:
    """Return `verdict` with the quarantine that is in force, or with the warning that it has expired."""
    expired = check_quarantine(case)[1]
    if expired is not None:
        return replace(verdict, warnings=(*verdict.warnings, expired))
    return verdict if case.xfail is None else replace(verdict, quarantined=case.xfail)


def build_not_run_verdict(case: Case, error: BudgetSpentError) -> Verdict:
    """Return the verdict of a case for which no budget was left."""
    fault = RunFault(code=error.code, message=str(error), measured=False)
    transcript = Transcript(input=dict(case.input), stop_reason=fault.code, fault=fault)
    return build_verdict(case, NOT_RUN, (Reason(code=error.code, message=str(error)),), transcript)


def build_error_verdict(case: Case, error: EvalkitError) -> Verdict:
    """Return the verdict of a case that could not start."""
    problems = error.problems if isinstance(error, SpecError) else ()
    reasons = tuple(
        Reason(code=problem.code, message=problem.message, location=str(problem.location)) for problem in problems
    )
    if not reasons:
        place = "agent" if error.code == "unknown_agent" else ""
        location = str(case.locate(("agent",))) if place else ""
        reasons = (Reason(code=error.code, message=str(error), place=place, location=location),)
    fault = RunFault(code=reasons[0].code, message=str(error), measured=False)
    transcript = Transcript(input=dict(case.input), stop_reason=fault.code, fault=fault)
    return build_verdict(case, ERROR, reasons, transcript)


def build_unjudged_verdict(case: Case, status: str, reason: Reason, summary: str | None = None) -> Verdict:
    """Return the verdict of a case that something other than a judgement of its run ended."""
    return apply_quarantine(case, build_verdict(case, status, (reason,), Transcript(), summary=summary))


def build_verdict(
    case: Case,
    status: str,
    reasons: tuple[Reason, ...],
    transcript: Transcript,
    judgement: Judgement | None = None,
    summary: str | None = None,
) -> Verdict:
    """Return a verdict on `case`; `judgement` gives calls, checks and score. The first reason is the summary, unless
    one is given."""
    judgement = judgement or Judgement()
    if summary is None:
        summary = judgement.summary or (reasons[0].message.partition("\n")[0] if reasons else "")
    return Verdict(
        case_id=case.id,
        status=status,
        reasons=reasons,
        calls=judgement.calls,
        checks=judgement.checks,
        transcript=transcript,
        score=judgement.score,
        features=judgement.features,
        summary=summary,
        description=case.description,
        category=case.category,
        tags=case.tags,
        must_pass=case.must_pass,
        path=case.path.as_posix() if case.path else "",
        row=case.row,
        case=case.merged,
        warnings=transcript.warnings,
    )


# Several runs of one case. A run that could not be measured, or was not made for lack of budget, counts neither way.
# The case passes once `min_pass` runs passed. It failed once the runs that were not made or not measured could not
# lift it there; if they could, it is an error, or not run. A rule (`until: decided`) takes the place of `min_pass`: it
# decides on the measured runs, and what it leaves open is not measured.

ONE_CASSETTE = "{runs} runs over one hand-written cassette would be the same run: it ran once"


def is_decided(runs: Sequence[Verdict], repeat: Repeat) -> bool:
    """Return whether no further run is to be made: it can't change the status, or would be the same run."""
    if repeat.is_whole or is_hand_written_replay(runs[-1]):
        return is_hand_written_replay(runs[-1])
    passed = sum(run.status == PASSED for run in runs)
    if repeat.rule is not None:
        return repeat.rule.decide(passed, sum(run.status == FAILED for run in runs)) is not None
    return settled(repeat.runs, repeat.min_pass, passed, len(runs) - passed) is not None


def is_hand_written_replay(run: Verdict) -> bool:
    """Return whether the run's model turns came from a hand-written cassette."""
    return run.transcript.cassette == "hand-written"


def combine_verdicts(runs: Sequence[Verdict], repeat: Repeat) -> Verdict:
    """Return the verdict of the case, with the details of its first run of that status, else failed or unmeasured."""
    if is_hand_written_replay(runs[0]):
        warning = ONE_CASSETTE.format(runs=repeat.runs)
        return replace(runs[0], warnings=(*runs[0].warnings, warning))
    passed = sum(run.status == PASSED for run in runs)
    errors = sum(run.status in (ERROR, NOT_RUN) for run in runs)
    failed = len(runs) - errors - passed
    remaining = repeat.runs - len(runs)
    unmeasured_status = NOT_RUN if runs[-1].status == NOT_RUN else ERROR
    if repeat.rule is not None:
        status = repeat.rule.decide(passed, failed) or unmeasured_status
    else:
        status = settled(repeat.runs, repeat.min_pass, passed, failed) or unmeasured_status
    representative = next(
        (run for candidate in (status, FAILED, ERROR) for run in runs if run.status == candidate), runs[0]
    )
    early = f", stopped after {len(runs)} of {repeat.runs}: decided" if remaining and unmeasured_status == ERROR else ""
    measured = f" ({errors} not measured)" if errors else ""
    needed = (
        f"{repeat.min_pass} needed"
        if repeat.rule is None
        else f"{repeat.min_pass} of {repeat.runs} or a clear trend needed"
    )
    summary = f"{passed}/{len(runs)} runs passed{measured}, {needed}{early}"
    reasons: tuple[Reason, ...] = ()
    if status != PASSED:  # those of the first run with this status, each with the number of the run
        number, run = next((n, run) for n, run in enumerate(runs, 1) if run.status == status)
        reasons = tuple(replace(reason, message=f"run {number}: {reason.message}") for reason in run.reasons)
    return replace(
        representative,
        status=status,
        reasons=reasons,
        summary=summary,
        runs=tuple(runs),
        runs_planned=repeat.runs,
        min_pass=repeat.min_pass,
    )


# `evalkit.judge`: judge calls that the user collected, without running anything.

CALL_KEYS = (
    "name",
    "arguments",
    "result",
    "outcome",
    "turn",
    "channel",
    "answered_by",
    "user_turn",
    "call_id",
    "requested_name",
    "duration_ms",
    "agent",
)
CHOICES = {"outcome": ("ok", "error"), "channel": CHANNELS, "answered_by": ANSWERERS}
NAMELESS = "(no name)"


def judge(
    expected_output: JsonObject,
    calls: Iterable[JsonObject],
    *,
    response: str = "",
    input: object = None,
    functions: Iterable[JsonObject] | None = None,
) -> Verdict:
    """Hold `calls` and `response` against `expected_output`, the mapping of a case file.

    A call is ``{"name", "arguments", "result"?, "outcome"?, "turn"?, "channel"?, "answered_by"?, "agent"?}``;
    `functions` are declarations ``{name, description, parameters, returns}``, with which arguments are checked
    against their schemas. `input` is what `grounded` and templates refer to. What would need a whole run (time,
    tokens, stop reason) is listed as not judged. Raises SpecError for expectations or declarations that break the
    format, UsageError for a record of calls that does; whatever the agent sent in a call ends in the verdict.
    """
    declarations = _parse_declarations(functions)
    expectation, problems = compile_expectation(_read_expected_output(expected_output), declarations=declarations)
    if problems:
        raise _build_spec_error(problems)
    safe_input = to_json_safe(input)[0]
    if calls is None or isinstance(calls, (str, bytes, Mapping)) or not isinstance(calls, Iterable):
        kind = type(calls).__name__
        raise UsageError(f'judge(calls=...) is a list of {{"name": ..., "arguments": {{...}}}}, got a {kind}')
    read_calls = tuple(_read_call(call, index, declarations) for index, call in enumerate(list(calls)))
    if response is not None and not isinstance(response, str):
        raise UsageError(f"judge(response=...) is a string, got a {type(response).__name__}")
    transcript = Transcript(
        input=safe_input,
        calls=read_calls,
        response=response or "",
        functions=tuple(declarations),
    )
    judgement = expectation.judge(transcript, input=transcript.input, mode="judge")
    return build_verdict(Case(id=""), judgement.status, judgement.reasons, transcript, judgement)


def _read_expected_output(expected_output: object) -> JsonObject:
    if isinstance(expected_output, Mapping):
        return {key: _to_file_form(value) for key, value in expected_output.items()}
    kind = type(expected_output).__name__
    raise _build_spec_error([PathProblem(("expected_output",), f"expected_output is a mapping, got a {kind}")])


def _to_file_form(value: object, depth: int = 0) -> object:
    """Make mappings dicts and tuples lists, the way `case_from_dict` reads them; keep what is nested too deep."""
    if depth > MAX_DEPTH:
        return value
    if isinstance(value, Mapping):
        return {key: _to_file_form(item, depth + 1) for key, item in value.items()}
    return [_to_file_form(item, depth + 1) for item in value] if isinstance(value, (list, tuple)) else value


def _build_spec_error(problems: Iterable[PathProblem]) -> SpecError:
    return SpecError(
        [Problem(Location(format_path(problem.path) or "judge"), problem.message, problem.code) for problem in problems]
    )


def _parse_declarations(functions: object) -> dict[str, Declaration]:
    if functions is None:
        return {}
    if isinstance(functions, Iterable) and not isinstance(functions, (str, Mapping)):
        functions = [item.to_json() if isinstance(item, Declaration) else item for item in functions]
    declarations, problems = parse_declarations(functions, path=("functions",))
    if problems:
        raise _build_spec_error(problems)
    return {declaration.name: declaration for declaration in declarations}


def _read_call(data: object, index: int, declarations: Mapping[str, Declaration]) -> FunctionCall:
    """Return the call that `data` records. Hostile content makes it a malformed call, which fails by itself."""
    if isinstance(data, FunctionCall):
        return data
    if not isinstance(data, Mapping):
        arguments, _ = to_json_safe(data)
        return FunctionCall(name=NAMELESS, arguments=arguments, index=index, problem="malformed_call")
    for key in data:
        if key not in CALL_KEYS:
            hint = did_you_mean(key, CALL_KEYS) or f"; a call has {', '.join(CALL_KEYS)}"
            raise UsageError(f"judge: calls[{index}] has the unknown key {key!r}{hint}")
    raw_name = data.get("name")
    name = raw_name if isinstance(raw_name, str) else ""
    arguments, not_json = to_json_safe({} if data.get("arguments") is None else data["arguments"])
    result, _ = to_json_safe(data.get("result"))
    error = result.get("error") if isinstance(result, Mapping) and len(result) == 1 else None
    outcome = "error" if isinstance(error, Mapping) and "type" in error else "ok"
    others = (other for other in declarations.values() if name in other.aliases or is_offered_as(other.name, name))
    declaration = declarations.get(name) or next(others, None)
    malformed = not name or not_json is not None or not isinstance(arguments, dict)
    unknown = bool(declarations) and declaration is None
    return FunctionCall(
        name=declaration.name if declaration else name or NAMELESS,
        arguments=arguments,
        index=index,
        outcome=_read_choice(data, "outcome", outcome, index),
        result=result,
        turn=_read_whole_number(data, "turn", index),
        user_turn=_read_whole_number(data, "user_turn", index) or 0,
        channel=_read_choice(data, "channel", "direct", index),
        answered_by=_read_choice(data, "answered_by", MOCK, index),
        call_id=data.get("call_id"),
        requested_name=name if declaration and declaration.name != name else data.get("requested_name"),
        duration_ms=data.get("duration_ms") or 0.0,
        agent=_read_agent(data, index),
        problem="malformed_call" if malformed else "unknown_function" if unknown else None,
        violations=() if malformed or declaration is None else find_argument_violations(declaration, arguments),
    )


def _read_choice(data: JsonObject, key: str, default: str, index: int) -> str:
    value = data.get(key)
    if value is None:
        return default
    if value not in CHOICES[key]:
        raise UsageError(f"judge: calls[{index}].{key} is one of {', '.join(CHOICES[key])}, got {value!r}")
    return str(value)


def _read_agent(data: JsonObject, index: int) -> str | None:
    name = data.get("agent")
    if name is not None and (not isinstance(name, str) or not name):
        raise UsageError(f"judge: calls[{index}].agent is the name of an agent, got {name!r}")
    return name


def _read_whole_number(data: JsonObject, key: str, index: int) -> int | None:
    value = data.get(key)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise UsageError(f"judge: calls[{index}].{key} is a whole number, counted from 0, got {value!r}")
    return value
