"""`evalkit.judge`: calls that the user collected are judged, without running anything."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from evalkit.checks.compile import compile_expectation
from evalkit.errors import (
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
from evalkit.records.case import Case, Declaration, is_offered_as
from evalkit.records.transcript import ANSWERERS, CHANNELS, MOCK, FunctionCall, Transcript
from evalkit.records.verdict import Verdict
from evalkit.runner.judge import build_verdict

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
