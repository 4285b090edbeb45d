"""`evalkit.judge`: judging calls that somebody else collected, without running anything."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from evalkit.errors import Location, PathProblem, Problem, SpecError, UsageError, did_you_mean, format_path
from evalkit.jsonvalue import MAX_SAFE_DEPTH, to_json_safe
from evalkit.model.case import Declaration
from evalkit.model.transcript import FunctionCall, Transcript, Violation
from evalkit.model.verdict import Verdict

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
    from evalkit.checks.compile import compile_expectation

    declarations = _parse_declarations(functions)
    expectation, problems = compile_expectation(_read_expected_output(expected_output), declarations=declarations)
    if problems:
        raise _build_spec_error(problems)
    transcript = Transcript(
        input=to_json_safe(input)[0],
        calls=tuple(_read_call(call, index, declarations) for index, call in enumerate(_list_calls(calls))),
        response=_read_response(response),
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


def _read_expected_output(expected_output: Any) -> Mapping[str, Any]:
    if isinstance(expected_output, Mapping):
        return {key: _to_file_form(value) for key, value in expected_output.items()}
    kind = type(expected_output).__name__
    raise _build_spec_error([PathProblem(("expected_output",), f"expected_output is a mapping, got a {kind}")])


def _to_file_form(value: Any, depth: int = 0) -> Any:
    """Every mapping as a dict and every tuple as a list, as `case_from_dict` reads them; what is too deep, as it is."""
    if depth > MAX_SAFE_DEPTH:
        return value
    if isinstance(value, Mapping):
        return {key: _to_file_form(item, depth + 1) for key, item in value.items()}
    return [_to_file_form(item, depth + 1) for item in value] if isinstance(value, (list, tuple)) else value


def _build_spec_error(problems: Iterable[PathProblem]) -> SpecError:
    return SpecError(
        [Problem(Location(format_path(problem.path) or "judge"), problem.message, problem.code) for problem in problems]
    )


def _parse_declarations(functions: Any) -> dict[str, Declaration]:
    if functions is None:
        return {}
    from evalkit.functions.declarations import parse_declarations

    if isinstance(functions, Iterable) and not isinstance(functions, (str, Mapping)):
        functions = [item.to_json() if isinstance(item, Declaration) else item for item in functions]
    declarations, problems = parse_declarations(functions, path=("functions",))
    if problems:
        raise _build_spec_error(problems)
    return {declaration.name: declaration for declaration in declarations}


def _read_response(response: Any) -> str:
    if response is None:
        return ""
    if not isinstance(response, str):
        raise UsageError(f"judge(response=...) is a string, got a {type(response).__name__}")
    return response


def _list_calls(calls: Any) -> list[Any]:
    if calls is None or isinstance(calls, (str, bytes, Mapping)) or not isinstance(calls, Iterable):
        kind = type(calls).__name__
        raise UsageError(f'judge(calls=...) is a list of {{"name": ..., "arguments": {{...}}}}, got a {kind}')
    return list(calls)


def _read_call(data: Any, index: int, declarations: Mapping[str, Declaration]) -> FunctionCall:
    """The call that `data` records. Hostile content makes it a malformed call, which fails by itself."""
    if isinstance(data, FunctionCall):
        return data
    if not isinstance(data, Mapping):
        arguments, _ = to_json_safe(data)
        return FunctionCall(name=NAMELESS, arguments=arguments, index=index, problem="malformed_call")
    for key in data:
        if key not in CALL_KEYS:
            hint = did_you_mean(key, CALL_KEYS) or f"; a call has {', '.join(CALL_KEYS)}"
            raise UsageError(f"judge: calls[{index}] has the unknown key {key!r}{hint}")
    return _build_call(data, index, declarations)


def _build_call(data: Mapping[str, Any], index: int, declarations: Mapping[str, Declaration]) -> FunctionCall:
    raw_name = data.get("name")
    name = raw_name if isinstance(raw_name, str) else ""
    arguments, not_json = to_json_safe({} if data.get("arguments") is None else data["arguments"])
    result, _ = to_json_safe(data.get("result"))
    declaration = _find_declaration(name, declarations)
    malformed = not name or not_json is not None or not isinstance(arguments, dict)
    unknown = bool(declarations) and declaration is None
    return FunctionCall(
        name=declaration.name if declaration else name or NAMELESS,
        arguments=arguments,
        index=index,
        outcome=_read_choice(data, "outcome", _infer_outcome(result), index),
        result=result,
        turn=_read_whole_number(data, "turn", index),
        user_turn=_read_whole_number(data, "user_turn", index) or 0,
        channel=_read_choice(data, "channel", "direct", index),
        call_id=data.get("call_id"),
        requested_name=name if declaration and declaration.name != name else data.get("requested_name"),
        duration_ms=data.get("duration_ms") or 0.0,
        problem="malformed_call" if malformed else "unknown_function" if unknown else None,
        violations=() if malformed or declaration is None else _find_violations(declaration, arguments),
    )


def _find_declaration(name: str, declarations: Mapping[str, Declaration]) -> Declaration | None:
    match = declarations.get(name)
    return match or next((declaration for declaration in declarations.values() if name in declaration.aliases), None)


def _find_violations(declaration: Declaration, arguments: Any) -> tuple[Violation, ...]:
    from evalkit.functions.arguments import find_argument_violations

    return find_argument_violations(declaration, arguments)


def _infer_outcome(result: Any) -> str:
    """A failed call's result is ``{"error": {"type": ..., "message": ...}}``."""
    error = result.get("error") if isinstance(result, Mapping) and len(result) == 1 else None
    return "error" if isinstance(error, Mapping) and "type" in error else "ok"


def _read_choice(data: Mapping[str, Any], key: str, default: str, index: int) -> str:
    value = data.get(key)
    if value is None:
        return default
    if value not in CHOICES[key]:
        raise UsageError(f"judge: calls[{index}].{key} is one of {', '.join(CHOICES[key])}, got {value!r}")
    return str(value)


def _read_whole_number(data: Mapping[str, Any], key: str, index: int) -> int | None:
    value = data.get(key)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise UsageError(f"judge: calls[{index}].{key} is a whole number, counted from 0, got {value!r}")
    return value
