"""`evalkit.judge`: judging calls that somebody else collected, without running anything."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from evalkit.errors import Location, PathProblem, Problem, SpecError, UsageError, did_you_mean, shown_path
from evalkit.model.case import Declaration
from evalkit.model.transcript import FunctionCall, Transcript, Violation
from evalkit.model.verdict import Verdict
from evalkit.pipeline.evidence import MAX_DEPTH, json_safe

CALL_KEYS = (
    "name",
    "arguments",
    "result",
    "outcome",
    "turn",
    "channel",
    "user_turn",
    "call_id",
    "requested_name",
    "duration_ms",
)
CHOICES = {"outcome": ("ok", "error"), "channel": ("native", "text", "direct")}
NAMELESS = "(no name)"


def judge(
    expected_output: Mapping[str, Any],
    calls: Iterable[Mapping[str, Any]],
    *,
    response: str = "",
    input: Any = None,
    functions: Iterable[Mapping[str, Any]] | None = None,
) -> Verdict:
    """Hold `calls` and `response` against `expected_output`, the mapping of a case file.

    A call is ``{"name", "arguments", "result"?, "outcome"?, "turn"?, "channel"?}``; `functions` are declarations
    ``{name, description, parameters, returns}``, with which arguments are checked against their schemas. `input` is
    what `grounded` and templates refer to. What would need a whole run (time, tokens, stop reason) is listed as not
    judged. Raises SpecError for expectations or declarations that break the format, UsageError for a record of
    calls that does; whatever the agent sent in a call ends in the verdict.
    """
    from evalkit.checks.compiling import compile_expectation

    declarations = _declarations(functions)
    expectation, problems = compile_expectation(_mapping(expected_output), declarations=declarations)
    if problems:
        raise _refused(problems)
    transcript = Transcript(
        input=json_safe(input)[0],
        calls=tuple(_recorded(call, index, declarations) for index, call in enumerate(_listed(calls))),
        response=_text(response),
        functions=tuple(declarations),
    )
    judgement = expectation.judge(transcript, input=transcript.input, mode="judge")
    return Verdict(
        status=judgement.status,
        reasons=judgement.reasons,
        calls=judgement.calls,
        checks=judgement.checks,
        transcript=transcript,
        score=judgement.score,
        summary=judgement.summary,
    )


def _mapping(expected_output: Any) -> Mapping[str, Any]:
    if isinstance(expected_output, Mapping):
        return {key: _as_in_a_file(value) for key, value in expected_output.items()}
    kind = type(expected_output).__name__
    raise _refused([PathProblem(("expected_output",), f"expected_output is a mapping, got a {kind}")])


def _as_in_a_file(value: Any, depth: int = 0) -> Any:
    """Every mapping as a dict and every tuple as a list, as `case_from_dict` reads them; what is too deep, as it is."""
    if depth > MAX_DEPTH:
        return value
    if isinstance(value, Mapping):
        return {key: _as_in_a_file(item, depth + 1) for key, item in value.items()}
    return [_as_in_a_file(item, depth + 1) for item in value] if isinstance(value, (list, tuple)) else value


def _refused(problems: Iterable[PathProblem]) -> SpecError:
    return SpecError(
        [Problem(Location(shown_path(problem.path) or "judge"), problem.message, problem.code) for problem in problems]
    )


def _declarations(functions: Any) -> dict[str, Declaration]:
    if functions is None:
        return {}
    from evalkit.functions.declarations import parse_declarations

    if isinstance(functions, Iterable) and not isinstance(functions, (str, Mapping)):
        functions = [item.to_json() if isinstance(item, Declaration) else item for item in functions]
    declarations, problems = parse_declarations(functions, path=("functions",))
    if problems:
        raise _refused(problems)
    return {declaration.name: declaration for declaration in declarations}


def _text(response: Any) -> str:
    if response is None:
        return ""
    if not isinstance(response, str):
        raise UsageError(f"judge(response=...) is a string, got a {type(response).__name__}")
    return response


def _listed(calls: Any) -> list[Any]:
    if calls is None or isinstance(calls, (str, bytes, Mapping)) or not isinstance(calls, Iterable):
        kind = type(calls).__name__
        raise UsageError(f'judge(calls=...) is a list of {{"name": ..., "arguments": {{...}}}}, got a {kind}')
    return list(calls)


def _recorded(data: Any, index: int, declarations: Mapping[str, Declaration]) -> FunctionCall:
    """The call that `data` records. Hostile content makes it a malformed call, which fails by itself."""
    if isinstance(data, FunctionCall):
        return data
    if not isinstance(data, Mapping):
        shown, _ = json_safe(data)
        return FunctionCall(name=NAMELESS, arguments=shown, index=index, problem="malformed_call")
    for key in data:
        if key not in CALL_KEYS:
            near = did_you_mean(key, CALL_KEYS) or f"; a call has {', '.join(CALL_KEYS)}"
            raise UsageError(f"judge: calls[{index}] has the unknown key {key!r}{near}")
    return _call(data, index, declarations)


def _call(data: Mapping[str, Any], index: int, declarations: Mapping[str, Declaration]) -> FunctionCall:
    given = data.get("name")
    name = given if isinstance(given, str) else ""
    arguments, not_json = json_safe({} if data.get("arguments") is None else data["arguments"])
    result, _ = json_safe(data.get("result"))
    declaration = _declared(name, declarations)
    malformed = not name or not_json is not None or not isinstance(arguments, dict)
    unknown = bool(declarations) and declaration is None
    return FunctionCall(
        name=declaration.name if declaration else name or NAMELESS,
        arguments=arguments,
        index=index,
        outcome=_choice(data, "outcome", _outcome_of(result), index),
        result=result,
        turn=_whole(data, "turn", index),
        user_turn=_whole(data, "user_turn", index) or 0,
        channel=_choice(data, "channel", "direct", index),
        call_id=data.get("call_id"),
        requested_name=name if declaration and declaration.name != name else data.get("requested_name"),
        duration_ms=data.get("duration_ms") or 0.0,
        problem="malformed_call" if malformed else "unknown_function" if unknown else None,
        violations=() if malformed or declaration is None else _violations(declaration, arguments),
    )


def _declared(name: str, declarations: Mapping[str, Declaration]) -> Declaration | None:
    found = declarations.get(name)
    return found or next((one for one in declarations.values() if name in one.aliases), None)


def _violations(declaration: Declaration, arguments: Any) -> tuple[Violation, ...]:
    from evalkit.functions.violations import argument_violations

    return argument_violations(declaration, arguments)


def _outcome_of(result: Any) -> str:
    """A failed call's result is ``{"error": {"type": ..., "message": ...}}``."""
    error = result.get("error") if isinstance(result, Mapping) and len(result) == 1 else None
    return "error" if isinstance(error, Mapping) and "type" in error else "ok"


def _choice(data: Mapping[str, Any], key: str, default: str, index: int) -> str:
    value = data.get(key)
    if value is None:
        return default
    if value not in CHOICES[key]:
        raise UsageError(f"judge: calls[{index}].{key} is one of {', '.join(CHOICES[key])}, got {value!r}")
    return str(value)


def _whole(data: Mapping[str, Any], key: str, index: int) -> int | None:
    value = data.get(key)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise UsageError(f"judge: calls[{index}].{key} is a whole number, counted from 0, got {value!r}")
    return value
