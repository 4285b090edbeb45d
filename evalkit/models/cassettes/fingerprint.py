"""Requests to a model as plain data without secrets: their fingerprints, and the differences between two.

Two requests are the same when instruction, declarations, sampling settings and conversation are. Call ids, thought
signatures and the rest of what changes from one recording to the next play no part.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import TypeVar, cast

from evalkit.errors import format_path
from evalkit.jsonvalue import JsonDict, JsonObject
from evalkit.records.parts import PARTS
from evalkit.records.transcript import ModelRequest, ModelTurn
from evalkit.text.format import shorten
from evalkit.text.redact import build_redactor, redact_secrets

SHOWN_DIFFERENCES = 4
T = TypeVar("T")


def describe_request(request: ModelRequest, secrets: tuple[str, ...] = ()) -> JsonDict:
    """Describe `request` as data without secrets: `system`, `functions`, `settings` and `messages`.

    What the model said is touched only where it holds a secret that is known for certain.
    """
    data = describe_whole_request(request)
    messages = [
        {"model": redact_words(message["model"], secrets)} if "model" in message else redact_secrets(message, secrets)
        for message in data["messages"]
    ]
    return {**redact_secrets({**data, "messages": []}, secrets), "messages": messages}


def redact_words(data: T, secrets: tuple[str, ...]) -> T:
    """Copy what a model said without the secrets that are known for certain: none is one for the key it stands at."""
    return build_redactor(secrets, is_keyed=False).redact_data(data)


def describe_whole_request(request: ModelRequest) -> JsonDict:
    """Describe `request` as data, with its secrets: to be hashed, not to be written."""
    settings = {
        "temperature": request.temperature,
        "seed": request.seed,
        "max_output_tokens": request.max_output_tokens,
        "reasoning_effort": request.reasoning_effort,
        "verbosity": request.verbosity,
        "response_schema": request.response_schema,
    }
    messages: list[JsonDict] = []
    for message in request.messages:
        if message.get("role") == "model":
            messages.append({"model": describe_reply(message["turn"])})
        elif message.get("role") == "function":
            messages.append({"results": [{call.name: value} for call, value in message["results"]]})
        else:
            parts = message.get(PARTS)
            content = message.get("text", "") if not parts else [part.describe() for part in parts]
            messages.append({"user": content})
    return {
        "system": request.system,
        "functions": [
            {
                key: value
                for key in ("name", "description", "parameters")
                if (value := getattr(function, key)) not in (None, "")
            }
            for function in request.functions
        ],
        "settings": {key: value for key, value in settings.items() if value is not None},
        "messages": messages,
    }


def describe_reply(turn: ModelTurn) -> JsonDict:
    """Describe a model turn, without what changes from one recording to the next."""
    data: JsonDict = {"text": turn.text} if turn.text or not turn.calls else {}
    if turn.calls:
        data["calls"] = [
            {call.name: call.arguments}
            if call.malformed is None
            else {"name": call.name, "arguments": str(call.arguments), "malformed": call.malformed}
            for call in turn.calls
        ]
    return data


def compute_fingerprint(data: JsonObject) -> str:
    """Compute the fingerprint of a described request: 16 hexadecimal digits."""
    text = json.dumps(data, sort_keys=True, ensure_ascii=True, separators=(",", ":"), default=str)
    if "\\ud" in text:  # perhaps half a surrogate pair
        text = json.dumps(
            replace_lone_surrogates(data), sort_keys=True, ensure_ascii=True, separators=(",", ":"), default=str
        )
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def replace_lone_surrogates(data: T) -> T:
    """JSON data that a file can hold: half a surrogate pair, which models do write, is U+FFFD in it."""
    copied: object = data
    if isinstance(data, str):
        copied = data.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    elif isinstance(data, Mapping):
        copied = {replace_lone_surrogates(key): replace_lone_surrogates(value) for key, value in data.items()}
    elif isinstance(data, (list, tuple)):
        copied = [replace_lone_surrogates(value) for value in data]
    return cast("T", copied)


def adopt_draw(now: JsonObject, was: JsonObject) -> JsonDict:
    """Return the request `now` with the seed of `was`, as which it was recorded, and with its temperature where nobody
    sets one now: a recording is one draw, and as good with another seed."""
    recorded = was.get("settings") or {}
    settings = {key: value for key, value in (now.get("settings") or {}).items() if key != "seed"}
    adopted = {key: recorded[key] for key in ("seed", "temperature") if key in recorded and key not in settings}
    return {**now, "settings": {**settings, **adopted}}


def compare_requests(was: JsonObject, now: JsonObject) -> list[str]:
    """List what changed between two requests, one sentence each, the most telling first."""
    changes = []
    if was.get("system") != now.get("system"):
        changes.append(
            f"the instruction changed:{format_line_changes(was.get('system') or '', now.get('system') or '')}"
        )
    changes += compare_declarations(was.get("functions") or [], now.get("functions") or [])
    changes += [f"settings: {line}" for line in compare_values(was.get("settings") or {}, now.get("settings") or {})]
    old_messages, new_messages = was.get("messages") or [], now.get("messages") or []
    for index, (old, new) in enumerate(zip(old_messages, new_messages, strict=False)):
        if old != new:
            changed = "; ".join(list(compare_values(old, new))[:SHOWN_DIFFERENCES])
            return [*changes, f"message {index + 1} of the conversation changed: {changed}"]
    if len(old_messages) != len(new_messages):
        changes.append(f"the conversation had {len(old_messages)} messages, and has {len(new_messages)}")
    return changes


def format_line_changes(was: str, now: str, max_length: int | None = None) -> str:
    """Format the first lines in which two texts differ, each on an indented line of its own."""
    old, new = was.splitlines(), now.splitlines()
    lines: list[str] = []
    for kind, a, b, c, d in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind != "equal":
            start = 0 if max_length is None else _find_start(old[a:b], new[c:d], max_length)
            lines += [f"line {a + 1}: - {_excerpt(line, start, max_length)}" for line in old[a:b]]
            lines += [f"line {c + 1}: + {_excerpt(line, start, max_length)}" for line in new[c:d]]
    return "".join(f"\n    {line}" for line in lines[: 2 * SHOWN_DIFFERENCES])


def _find_start(old: Sequence[str], new: Sequence[str], max_length: int) -> int:
    """Find where to begin with one long line that has become another, so that their first difference is shown."""
    if len(old) != 1 or len(new) != 1:
        return 0
    shorter = min(len(old[0]), len(new[0]))
    first = next((index for index in range(shorter) if old[0][index] != new[0][index]), shorter)
    return first - max_length // 4 if first > max_length // 2 else 0


def _excerpt(line: str, start: int, max_length: int | None) -> str:
    rest = f"…{line[start:]}" if start else line
    return rest if max_length is None else shorten(rest, max_length)


def compare_declarations(was: Sequence[JsonObject], now: Sequence[JsonObject]) -> Iterator[str]:
    """List what changed between two lists of declarations, which have names."""
    old = {function.get("name"): function for function in was}
    new = {function.get("name"): function for function in now}
    yield from (f"function '{name}' is no longer declared" for name in old if name not in new)
    yield from (f"function '{name}' is newly declared" for name in new if name not in old)
    for name in old:
        if name in new and old[name] != new[name]:
            changed = "; ".join(list(compare_values(old[name], new[name]))[:SHOWN_DIFFERENCES])
            yield f"function '{name}' is declared differently: {changed}"
    if list(old) != list(new) and set(old) == set(new):
        yield f"the functions are declared in another order: {', '.join(map(str, new))}"


def compare_values(was: object, now: object) -> Iterator[str]:
    """List the paths at which two JSON values differ, with both values; an item put into a list is one difference."""
    from deepdiff import DeepDiff
    from deepdiff.helper import notpresent

    diff = DeepDiff(was, now, view="tree", threshold_to_diff_deeper=0)
    nodes = [(node.path(output_format="list"), node.t1, node.t2) for kind in diff.values() for node in kind]
    for path, old, new in sorted(nodes, key=lambda node: [str(step) for step in node[0]]):
        values = []
        for value in (old, new):
            text = "absent" if value is notpresent else json.dumps(value, ensure_ascii=False, default=str)
            values.append(shorten(text, 120))
        yield f"{format_path(path)} was {values[0]}, is {values[1]}"
