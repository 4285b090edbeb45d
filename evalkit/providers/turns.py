"""Model turns as people write them, in a cassette or in code, read strictly.

A turn has `calls` and `text`; a call is ``check_warranty: {serial_number: SN12345}``, or in the long form
``{name: check_warranty, arguments: {...}, id: c1}``, or a bare name. Arguments given as a string are taken as what the
model wrote: they must parse to a JSON object, otherwise the call is malformed, as it would be on the wire.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from math import isinf
from typing import Any

from evalkit.errors import KeyPath, PathProblem, did_you_mean
from evalkit.model.transcript import ModelCall, ModelTurn, Usage

TURN_KEYS = ("calls", "text", "finish_reason", "finish_message", "usage", "duration_ms", "model")
CALL_KEYS = ("name", "arguments", "id", "malformed")
USAGE_KEYS = ("input_tokens", "output_tokens", "reasoning_tokens", "cached_tokens", "total_tokens")
FINISH_REASONS = (
    "stop",
    "tool_calls",
    "length",
    "content_filter",
    "malformed_call",
    "empty",
    "truncated",
    "other",
)


def read_turn(data: Any, path: KeyPath, problems: list[PathProblem]) -> ModelTurn:
    """The turn that `data` describes. Whatever is wrong with it is added to `problems`."""
    if isinstance(data, str):
        return ModelTurn(text=data)
    if not isinstance(data, Mapping):
        problems.append(PathProblem(path, f"a turn is a mapping with 'calls' or 'text', got {describe_value(data)}"))
        return ModelTurn()
    report_unknown_keys(data, TURN_KEYS, path, problems, "a turn")
    calls = _read_calls(data.get("calls"), (*path, "calls"), problems)
    if not {"calls", "text", "finish_reason"} & set(data):
        problems.append(PathProblem(path, "the turn says nothing; write 'calls:' or 'text:' (text: \"\" is an answer)"))
    return ModelTurn(
        text=read_text(data, "text", path, problems) or "",
        calls=calls,
        finish_reason=_read_finish(data, bool(calls), path, problems),
        finish_message=read_text(data, "finish_message", path, problems),
        usage=_read_usage(data.get("usage"), (*path, "usage"), problems),
        model=read_text(data, "model", path, problems),
        duration_ms=_read_number(data, "duration_ms", path, problems),
    )


def _read_calls(data: Any, path: KeyPath, problems: list[PathProblem]) -> tuple[ModelCall, ...]:
    if data is None:
        return ()
    if not isinstance(data, (list, tuple)):
        hint = f"; write '- {next(iter(data))}: ...'" if isinstance(data, Mapping) and data else ""
        problems.append(PathProblem(path, f"'calls' is a list of calls, got {describe_value(data)}{hint}"))
        return ()
    calls = (_read_call(item, (*path, index), problems) for index, item in enumerate(data))
    return tuple(call for call in calls if call is not None)


def _read_call(data: Any, path: KeyPath, problems: list[PathProblem]) -> ModelCall | None:
    if isinstance(data, str) and data:
        return ModelCall(name=data)
    if not isinstance(data, Mapping) or not data:
        problems.append(
            PathProblem(path, f"a call is 'name: {{arguments}}' or {{name, arguments, id}}, got {describe_value(data)}")
        )
        return None
    if isinstance(data.get("name"), str):
        return _read_long_call(data, path, problems)
    if len(data) == 1:
        ((name, arguments),) = data.items()
        return _build_call(str(name), arguments, (*path, name), problems)
    if "name" in data:
        problems.append(
            PathProblem((*path, "name"), f"'name' is the function's name, got {describe_value(data['name'])}")
        )
    else:
        names = ", ".join(map(str, data))
        problems.append(PathProblem(path, f"one item is one call, got the keys {names}; start each call with '- '"))
    return None


def _read_long_call(data: Mapping[str, Any], path: KeyPath, problems: list[PathProblem]) -> ModelCall | None:
    report_unknown_keys(data, CALL_KEYS, path, problems, "a call")
    call = _build_call(data["name"], data.get("arguments"), (*path, "arguments"), problems)
    call_id = data.get("id")
    if call_id is not None and not isinstance(call_id, str):
        problems.append(PathProblem((*path, "id"), f"'id' is a string, got {describe_value(call_id)}; quote it"))
        call_id = None
    why = read_text(data, "malformed", path, problems)
    return ModelCall(
        name=call.name, arguments=call.arguments, call_id=call_id, malformed=why or call.malformed, raw=call.raw
    )


def _build_call(name: str, arguments: Any, path: KeyPath, problems: list[PathProblem]) -> ModelCall:
    if arguments is None:
        return ModelCall(name=name)
    if isinstance(arguments, str):
        value, why = parse_arguments(arguments)
        return ModelCall(name=name, arguments=arguments if why else value, malformed=why, raw=arguments)
    if not isinstance(arguments, Mapping):
        problems.append(PathProblem(path, f"arguments are a mapping, got {describe_value(arguments)}"))
        arguments = {}
    return ModelCall(name=name, arguments=arguments)


def parse_arguments(text: str) -> tuple[dict[str, Any], str | None]:
    """The JSON object that `text` is, and None; or an empty one, and why it is not a JSON object.

    Strict: no comments, no trailing text, no NaN, and no key twice (the last would win in silence). An empty text
    is the empty object, as OpenAI-compatible servers send it for functions without parameters.
    """
    if not text.strip():
        return {}, None
    try:
        value = json.loads(
            text, object_pairs_hook=_build_unique_object, parse_constant=_refuse_constant, parse_float=parse_finite
        )
    except RecursionError:
        return {}, "the arguments are nested too deeply"
    except ValueError as error:
        return {}, f"the arguments are not JSON: {error}"
    if not isinstance(value, dict):
        return {}, f"the arguments are {describe_value(value)}, not a JSON object"
    return value, None


def parse_finite(digits: str) -> float:
    """A number with a point or an exponent. ValueError for one so large that it would be infinite."""
    number = float(digits)
    if isinf(number):
        raise ValueError(f"{digits[:40]} is too large a number")
    return number


def _build_unique_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise ValueError(f"the key {twice!r} stands twice")
    return result


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _read_finish(data: Mapping[str, Any], has_calls: bool, path: KeyPath, problems: list[PathProblem]) -> str:
    default = "tool_calls" if has_calls else "stop"
    reason = read_text(data, "finish_reason", path, problems)
    if reason is not None and reason not in FINISH_REASONS:
        problems.append(
            PathProblem(
                (*path, "finish_reason"),
                f"unknown finish_reason '{reason}'{did_you_mean(reason, FINISH_REASONS)} "
                f"(one of {', '.join(FINISH_REASONS)})",
            )
        )
        return default
    return reason or default


def _read_usage(data: Any, path: KeyPath, problems: list[PathProblem]) -> Usage | None:
    if data is None:
        return None
    if not isinstance(data, Mapping):
        problems.append(PathProblem(path, f"'usage' is a mapping of token counts, got {describe_value(data)}"))
        return None
    report_unknown_keys(data, USAGE_KEYS, path, problems, "usage")
    counts: dict[str, int] = {}
    for key in USAGE_KEYS:
        count = data.get(key, 0)
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            problems.append(PathProblem((*path, key), f"'{key}' is a number of tokens, got {describe_value(count)}"))
        else:
            counts[key] = count
    parts = counts.get("input_tokens", 0) + counts.get("output_tokens", 0) + counts.get("reasoning_tokens", 0)
    return Usage(**{**counts, "total_tokens": counts.get("total_tokens") or parts})


def _read_number(data: Mapping[str, Any], key: str, path: KeyPath, problems: list[PathProblem]) -> float:
    value = data.get(key)
    if value is None:
        return 0.0
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < float("inf"):
        problems.append(PathProblem((*path, key), f"'{key}' is a number of milliseconds, got {describe_value(value)}"))
        return 0.0
    return float(value)


def read_text(data: Mapping[str, Any], key: str, path: KeyPath, problems: list[PathProblem]) -> str | None:
    """``data[key]``, a string, or None if it is not there. Anything else is a problem."""
    value = data.get(key)
    if value is None or isinstance(value, str):
        return value
    problems.append(PathProblem((*path, key), f"'{key}' is text, got {describe_value(value)}; quote it"))
    return None


def report_unknown_keys(
    data: Mapping[str, Any], allowed: tuple[str, ...], path: KeyPath, problems: list[PathProblem], subject: str
) -> None:
    """One problem for each key of `data` that is not in `known`, with the nearest name."""
    for key in data:
        if key not in allowed:
            hint = did_you_mean(key, allowed) or f"; {subject} has {', '.join(allowed)}"
            problems.append(PathProblem((*path, key), f"unknown key '{key}' in {subject}{hint}", at_key=True))


def describe_value(value: Any) -> str:
    """A value for a message: its JSON kind, and the value itself where it is short."""
    if value is None:
        return "nothing"
    if isinstance(value, Mapping):
        return f"a mapping ({', '.join(map(str, list(value)[:4]))})" if value else "an empty mapping"
    if isinstance(value, (list, tuple)):
        return f"a list of {len(value)}"
    text = json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= 60 else text[:59] + "…"
