"""Why a request of an agent's own client can't be answered offline, in words: missing, asked too often, or changed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from difflib import SequenceMatcher
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from evalkit.errors import EvalkitError, MissingCassetteError, StaleCassetteError
from evalkit.providers.asked import SHOWN_DIFFERENCES, functions_changed, value_changes
from evalkit.providers.http_bodies import FORMS
from evalkit.providers.http_cassette import HttpCassette

RECORD_COMMAND = "pytest --evalkit --evalkit-record=missing"
STALE_COMMAND = "pytest --evalkit --evalkit-record=stale"
_SHOWN_EXCHANGES = 5
_LONG = 80  # texts beyond this are compared line by line
_TOOL_KEYS = ("tools", "functions", "functionDeclarations", "function_declarations")


def no_http_cassette(file: str, asked: Mapping[str, Any]) -> str:
    """No file at all."""
    return (
        f"no HTTP cassette: the agent's client asked {_line(asked)}, and {file} does not exist. "
        f"Record it: {RECORD_COMMAND}\n"
        "Offline nothing goes out to the network; hosts that should be reached all the same are named in "
        "[tool.evalkit.http] ignore_hosts"
    )


def overwriting(file: str) -> str:
    """A hand-written file is in the way of a recording."""
    return (
        f"{file} is hand-written, and recording would overwrite it; move it away to record the case, "
        "or use --evalkit-record=missing to keep it"
    )


def ask_too_often(asked: Mapping[str, Any], cassette: HttpCassette) -> EvalkitError:
    """The request is recorded, and all its answers were given."""
    times = sum(_line(exchange["request"]) == _line(asked) for exchange in cassette.exchanges)
    often = "once" if times == 1 else f"{times} times"
    return MissingCassetteError(
        f"{_line(asked)} stands in {cassette.file} {often}, and the agent asked it once more. "
        f"Record the case again: {RECORD_COMMAND.replace('=missing', '=all')}"
    )


def not_recorded(asked: Mapping[str, Any], cassette: HttpCassette, played: Collection[int]) -> EvalkitError:
    """The error for a request that no exchange left in the cassette fits: stale if one goes to the same place."""
    left = [exchange["request"] for index, exchange in enumerate(cassette.exchanges) if index not in played]
    place = _place(asked)
    was = next((request for request in left if _place(request) == place), None)
    if was is None:
        held = [_line(request) for request in left[:_SHOWN_EXCHANGES]]
        more = f" and {len(left) - len(held)} more" if len(left) > len(held) else ""
        what = f"what is left there is {', '.join(held)}{more}" if held else "all of it was played"
        return MissingCassetteError(
            f"{_line(asked)} is not in {cassette.file}; {what}. "
            f"Record the case again: {RECORD_COMMAND.replace('=missing', '=all')}"
        )
    changed = "\n".join(f"  {line}" for line in _changes(was, asked))
    return StaleCassetteError(
        f"{cassette.file}: {_line(was)} was recorded with another request:\n{changed}\nRecord it again: {STALE_COMMAND}"
    )


def _line(request: Mapping[str, Any]) -> str:
    return f"{str(request.get('method', 'GET')).upper()} {request.get('url')}"


def _place(request: Mapping[str, Any]) -> tuple[str, str, str]:
    parts = urlsplit(str(request.get("url")))
    return str(request.get("method", "GET")).upper(), parts.netloc, parts.path


def _changes(was: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    old, new = (dict(parse_qsl(urlsplit(str(one.get("url"))).query, keep_blank_values=True)) for one in (was, now))
    found = [f"the URL's query: {line}" for line in value_changes(old, new)]
    form = next((form for form in FORMS if form in was or form in now), None)
    if form is None:
        return found or ["the URL is written differently"]
    found += _body_changes(was.get(form), now.get(form))
    return found[: 2 * SHOWN_DIFFERENCES] or ["the body came in another form (JSON, form, text)"]


def _body_changes(was: Any, now: Any) -> Iterator[str]:
    """Declared functions by name, long texts by line, and the rest by path."""
    if not isinstance(was, Mapping) or not isinstance(now, Mapping):
        yield from _text_change("the body", str(was), str(now)) if was != now else ()
        return
    for key in _TOOL_KEYS:
        if _named(was.get(key)) and _named(now.get(key)) and was[key] != now[key]:
            yield from functions_changed(_flat(was[key]), _flat(now[key]))
            was, now = {**was, key: None}, {**now, key: None}
    for path, old, new in _long_texts(was, now, ""):
        yield from _text_change(path, old, new)
    yield from value_changes(_shortened(was, now), _shortened(now, was))


def _named(tools: Any) -> bool:
    flat = _flat(tools)
    return bool(flat) and all(isinstance(tool, Mapping) and "name" in tool for tool in flat)


def _flat(tools: Any) -> list[Any]:
    """Declarations out of the lists in which the APIs wrap them."""
    found: list[Any] = []
    for tool in tools if isinstance(tools, list) else []:
        inner = tool if isinstance(tool, Mapping) else {}
        wrapped = next((inner[key] for key in _TOOL_KEYS if isinstance(inner.get(key), list)), None)
        found += (
            wrapped
            if wrapped is not None
            else [inner["function"] if isinstance(inner.get("function"), Mapping) else tool]
        )
    return found


def _long_texts(was: Any, now: Any, path: str) -> Iterator[tuple[str, str, str]]:
    if isinstance(was, Mapping) and isinstance(now, Mapping):
        for key in was:
            if key in now:
                yield from _long_texts(was[key], now[key], f"{path}.{key}" if path else str(key))
    elif isinstance(was, list) and isinstance(now, list):
        for index, (old, new) in enumerate(zip(was, now, strict=False)):
            yield from _long_texts(old, new, f"{path}[{index}]")
    elif isinstance(was, str) and isinstance(now, str) and was != now and _is_long(was, now):
        yield path, was, now


def _shortened(value: Any, other: Any) -> Any:
    """`value` without the long texts that differ, which are told apart."""
    if isinstance(value, Mapping):
        return {
            key: _shortened(item, other.get(key) if isinstance(other, Mapping) else None) for key, item in value.items()
        }
    if isinstance(value, list):
        others = other if isinstance(other, list) else []
        return [_shortened(item, others[index] if index < len(others) else None) for index, item in enumerate(value)]
    return "…" if isinstance(value, str) and isinstance(other, str) and _is_long(value, other) else value


def _is_long(one: str, other: str) -> bool:
    return "\n" in one or "\n" in other or max(len(one), len(other)) > _LONG


def _text_change(path: str, was: str, now: str) -> Iterator[str]:
    old, new = was.splitlines(), now.splitlines()
    lines: list[str] = []
    for kind, a, b, c, d in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind != "equal":
            lines += [f"line {a + 1}: - {_cut(line)}" for line in old[a:b]]
            lines += [f"line {c + 1}: + {_cut(line)}" for line in new[c:d]]
    yield f"{path} changed:" + "".join(f"\n    {line}" for line in lines[: 2 * SHOWN_DIFFERENCES])


def _cut(line: str) -> str:
    return line if len(line) <= 200 else line[:199] + "…"
