"""Why a request of an agent's own client can't be answered offline, in words: missing, asked too often, or changed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from difflib import SequenceMatcher
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from evalkit.errors import EvalkitError, MissingCassetteError, StaleCassetteError
from evalkit.providers.asked import SHOWN_DIFFERENCES, compare_declarations, compare_values
from evalkit.providers.http_bodies import FORMS
from evalkit.providers.http_cassette import HttpCassette

RECORD_COMMAND = "pytest --evalkit --evalkit-record=missing"
STALE_COMMAND = "pytest --evalkit --evalkit-record=stale"
_SHOWN_EXCHANGES = 5
_LONG = 80  # texts beyond this are compared line by line
_TOOL_KEYS = ("tools", "functions", "functionDeclarations", "function_declarations")


def explain_missing_cassette(file: str, request_data: Mapping[str, Any]) -> str:
    """No file at all."""
    return (
        f"no HTTP cassette: the agent's client asked {_format_request_line(request_data)}, and {file} does not exist. "
        f"Record it: {RECORD_COMMAND}\n"
        "Offline nothing goes out to the network; hosts that should be reached all the same are named in "
        "[tool.evalkit.http] ignore_hosts"
    )


def explain_overwrite(file: str) -> str:
    """A hand-written file is in the way of a recording."""
    return (
        f"{file} is hand-written, and recording would overwrite it; move it away to record the case, "
        "or use --evalkit-record=missing to keep it"
    )


def build_exhausted_error(request_data: Mapping[str, Any], cassette: HttpCassette) -> EvalkitError:
    """The request is recorded, and all its answers were given."""
    times = sum(
        _format_request_line(exchange["request"]) == _format_request_line(request_data)
        for exchange in cassette.exchanges
    )
    often = "once" if times == 1 else f"{times} times"
    return MissingCassetteError(
        f"{_format_request_line(request_data)} stands in {cassette.file} {often}, and the agent asked it once more. "
        f"Record the case again: {RECORD_COMMAND.replace('=missing', '=all')}"
    )


def build_unrecorded_error(
    request_data: Mapping[str, Any], cassette: HttpCassette, played: Collection[int]
) -> EvalkitError:
    """The error for a request that no exchange left in the cassette fits: stale if one goes to the same place."""
    unplayed = [exchange["request"] for index, exchange in enumerate(cassette.exchanges) if index not in played]
    place = _get_endpoint(request_data)
    was = next((request for request in unplayed if _get_endpoint(request) == place), None)
    if was is None:
        recorded_lines = [_format_request_line(request) for request in unplayed[:_SHOWN_EXCHANGES]]
        suffix = f" and {len(unplayed) - len(recorded_lines)} more" if len(unplayed) > len(recorded_lines) else ""
        contents = (
            f"what is left there is {', '.join(recorded_lines)}{suffix}" if recorded_lines else "all of it was played"
        )
        return MissingCassetteError(
            f"{_format_request_line(request_data)} is not in {cassette.file}; {contents}. "
            f"Record the case again: {RECORD_COMMAND.replace('=missing', '=all')}"
        )
    changed = "\n".join(f"  {line}" for line in _compare_exchanges(was, request_data))
    return StaleCassetteError(
        f"{cassette.file}: {_format_request_line(was)} was recorded with another request:\n{changed}\nRecord it again: {STALE_COMMAND}"
    )


def _format_request_line(request: Mapping[str, Any]) -> str:
    return f"{str(request.get('method', 'GET')).upper()} {request.get('url')}"


def _get_endpoint(request: Mapping[str, Any]) -> tuple[str, str, str]:
    parts = urlsplit(str(request.get("url")))
    return str(request.get("method", "GET")).upper(), parts.netloc, parts.path


def _compare_exchanges(was: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    old, new = (
        dict(parse_qsl(urlsplit(str(request.get("url"))).query, keep_blank_values=True)) for request in (was, now)
    )
    changes = [f"the URL's query: {line}" for line in compare_values(old, new)]
    form = next((form for form in FORMS if form in was or form in now), None)
    if form is None:
        return changes or ["the URL is written differently"]
    changes += _compare_bodies(was.get(form), now.get(form))
    return changes[: 2 * SHOWN_DIFFERENCES] or ["the body came in another form (JSON, form, text)"]


def _compare_bodies(was: Any, now: Any) -> Iterator[str]:
    """Declared functions by name, long texts by line, and the rest by path."""
    if not isinstance(was, Mapping) or not isinstance(now, Mapping):
        yield from _describe_text_change("the body", str(was), str(now)) if was != now else ()
        return
    for key in _TOOL_KEYS:
        if _has_names(was.get(key)) and _has_names(now.get(key)) and was[key] != now[key]:
            yield from compare_declarations(_list_tools(was[key]), _list_tools(now[key]))
            was, now = {**was, key: None}, {**now, key: None}
    for path, old, new in _find_long_texts(was, now, ""):
        yield from _describe_text_change(path, old, new)
    yield from compare_values(_cut_long_texts(was, now), _cut_long_texts(now, was))


def _has_names(tools: Any) -> bool:
    flat = _list_tools(tools)
    return bool(flat) and all(isinstance(tool, Mapping) and "name" in tool for tool in flat)


def _list_tools(tools: Any) -> list[Any]:
    """Declarations out of the lists in which the APIs wrap them."""
    functions: list[Any] = []
    for tool in tools if isinstance(tools, list) else []:
        inner = tool if isinstance(tool, Mapping) else {}
        wrapped = next((inner[key] for key in _TOOL_KEYS if isinstance(inner.get(key), list)), None)
        functions += (
            wrapped
            if wrapped is not None
            else [inner["function"] if isinstance(inner.get("function"), Mapping) else tool]
        )
    return functions


def _find_long_texts(was: Any, now: Any, path: str) -> Iterator[tuple[str, str, str]]:
    if isinstance(was, Mapping) and isinstance(now, Mapping):
        for key in was:
            if key in now:
                yield from _find_long_texts(was[key], now[key], f"{path}.{key}" if path else str(key))
    elif isinstance(was, list) and isinstance(now, list):
        for index, (old, new) in enumerate(zip(was, now, strict=False)):
            yield from _find_long_texts(old, new, f"{path}[{index}]")
    elif isinstance(was, str) and isinstance(now, str) and was != now and _is_long(was, now):
        yield path, was, now


def _cut_long_texts(value: Any, counterpart: Any) -> Any:
    """`value` without the long texts that differ, which are told apart."""
    if isinstance(value, Mapping):
        return {
            key: _cut_long_texts(item, counterpart.get(key) if isinstance(counterpart, Mapping) else None)
            for key, item in value.items()
        }
    if isinstance(value, list):
        counterparts = counterpart if isinstance(counterpart, list) else []
        return [
            _cut_long_texts(item, counterparts[index] if index < len(counterparts) else None)
            for index, item in enumerate(value)
        ]
    return "…" if isinstance(value, str) and isinstance(counterpart, str) and _is_long(value, counterpart) else value


def _is_long(first: str, second: str) -> bool:
    return "\n" in first or "\n" in second or max(len(first), len(second)) > _LONG


def _describe_text_change(path: str, was: str, now: str) -> Iterator[str]:
    old, new = was.splitlines(), now.splitlines()
    lines: list[str] = []
    for kind, a, b, c, d in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind != "equal":
            lines += [f"line {a + 1}: - {_cut_line(line)}" for line in old[a:b]]
            lines += [f"line {c + 1}: + {_cut_line(line)}" for line in new[c:d]]
    yield f"{path} changed:" + "".join(f"\n    {line}" for line in lines[: 2 * SHOWN_DIFFERENCES])


def _cut_line(line: str) -> str:
    return line if len(line) <= 200 else line[:199] + "…"
