"""Recordings of one run in each format: an agent that closes an order, and then deletes all of them."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

Data = dict[str, Any]
Path = tuple[str | int, ...]
BAD = "delete_all"
ASKED = {"role": "user", "content": "Close order 7."}
REPLIED = {"role": "assistant", "content": "It is closed."}
CALLED = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "c2", "type": "function", "function": {"name": BAD, "arguments": "{}"}}],
}


def build_span(span_id: str, attributes: Data, *, parent: str = "0", **more: Any) -> Data:
    """Build a span of OTLP/JSON, whose start is its id."""
    listed = [
        {"key": key, "value": {"stringValue": value if isinstance(value, str) else json.dumps(value)}}
        for key, value in attributes.items()
    ]
    ids = {"traceId": "t", "spanId": span_id, "parentSpanId": parent if span_id != "0" else ""}
    return {**ids, "startTimeUnixNano": span_id, "attributes": listed, **more}


def build_chat(span_id: str, *parts: Data, **more: Any) -> Data:
    asked = [{"role": "user", "parts": [{"type": "text", "content": ASKED["content"]}]}]
    replied = {"gen_ai.output.messages": [{"role": "assistant", "parts": list(parts)}]} if parts else {}
    attributes = {"gen_ai.operation.name": "chat", "gen_ai.input.messages": asked, **replied}
    return build_span(span_id, attributes | more.pop("attributes", {}), **more)


def build_tool(span_id: str, name: str, arguments: Data, **more: Any) -> Data:
    values = {"gen_ai.tool.name": name, "gen_ai.tool.call.arguments": arguments, "gen_ai.tool.call.result": {"x": 1}}
    return build_span(span_id, {"gen_ai.operation.name": "execute_tool", **values}, **more)


def ask(name: str, arguments: Data, call_id: str = "c1") -> Data:
    return {"type": "tool_call", "id": call_id, "name": name, "arguments": arguments}


def wrap(spans: list[Data]) -> Data:
    return {"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}


AGENT = build_span("0", {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "desk"})
FINAL = {"type": "text", "content": "It is closed."}
GOOD = [
    AGENT,
    build_chat("1", ask("close_order", {"order": 7})),
    build_tool("2", "close_order", {"order": 7}),
    build_chat("3", FINAL),
]


def _flatten(side: str, message: Data) -> Data:
    root = f"llm.{side}_messages.0.message"
    flat = {f"{root}.role": message["role"], **({f"{root}.content": message["content"]} if message["content"] else {})}
    for call in message.get("tool_calls", ()):
        flat |= {f"{root}.tool_calls.0.tool_call.function.{key}": value for key, value in call["function"].items()}
    return flat


def _build_openinference(span_id: str, replied: Data) -> Data:
    kind = {"openinference.span.kind": "LLM"}
    return build_span(span_id, {**kind, **_flatten("input", ASKED), **_flatten("output", replied)})


def _build_run(second: int, **run: Any) -> Data:
    times = {"start_time": f"2026-01-01T00:00:0{second}", "end_time": f"2026-01-01T00:00:0{second + 1}"}
    return {"id": str(second), **times, **run}


def _build_line(number: int, role: str, content: object) -> Data:
    return {"type": role, "sessionId": "s", "uuid": str(number), "message": {"role": role, "content": content}}


_PARTS = [
    {"role": "user", "parts": [{"text": "Close order 7."}]},
    {"role": "model", "parts": [{"functionCall": {"name": BAD, "args": {}}}]},
    {"role": "user", "parts": [{"functionResponse": {"name": BAD, "response": {"a": 1}}}]},
    {"role": "model", "parts": [{"text": "done"}]},
]
_INTERMEDIATE = {"tool_uses": [{"name": BAD, "args": {}}], "tool_responses": [{"name": BAD, "response": {}}]}
_INVOCATION = {"user_content": _PARTS[0], "final_response": _PARTS[3], "intermediate_data": _INTERMEDIATE}

# What an agent did in each format; a list is written as JSON Lines. All of them hold a call of BAD.
RECORDINGS: dict[str, Any] = {
    "chat": {"messages": [ASKED, CALLED, {"role": "tool", "tool_call_id": "c2", "content": "{}"}, REPLIED]},
    "anthropic": {
        "system": "s",
        "messages": [
            ASKED,
            {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": BAD, "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "x"}]},
            REPLIED,
        ],
    },
    "gemini": {"contents": _PARTS},
    "responses": {
        "input": [
            ASKED,
            {"type": "function_call", "call_id": "c", "name": BAD, "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": "1"},
            REPLIED,
        ]
    },
    "langsmith": {
        "id": "r",
        "run_type": "chain",
        "child_runs": [
            _build_run(1, run_type="llm", inputs={"messages": [ASKED]}, outputs=CALLED),
            _build_run(5, run_type="llm", inputs={"messages": [ASKED]}, outputs=REPLIED),
        ],
    },
    "langfuse": {
        "id": "t",
        "observations": [
            {"id": "a", "type": "GENERATION", "startTime": "2026-01-01T00:00:01Z", "input": [ASKED], "output": CALLED},
            {"id": "b", "type": "TOOL", "name": BAD, "startTime": "2026-01-01T00:00:03Z", "input": {}, "output": {}},
            {"id": "c", "type": "GENERATION", "startTime": "2026-01-01T00:00:05Z", "input": [ASKED], "output": REPLIED},
        ],
    },
    "adk session": {"events": [{"author": content["role"], "content": content} for content in _PARTS]},
    "adk eval set": {"eval_cases": [{"eval_id": "x", "conversation": [_INVOCATION]}]},
    "claude code": [
        _build_line(1, "user", "Close order 7."),
        _build_line(2, "assistant", [{"type": "tool_use", "id": "c", "name": BAD, "input": {}}]),
        _build_line(3, "user", [{"type": "tool_result", "tool_use_id": "c", "content": "x"}]),
        _build_line(4, "assistant", [{"type": "text", "text": "done"}]),
    ],
    "opentelemetry": wrap([AGENT, build_chat("1", ask(BAD, {})), build_tool("2", BAD, {}), build_chat("3", FINAL)]),
    "opentelemetry, models alone": wrap([AGENT, build_chat("1", ask(BAD, {})), build_chat("3", FINAL)]),
    "openinference": wrap([_build_openinference("1", CALLED), _build_openinference("3", REPLIED)]),
}


def _list_paths(data: Any, path: Path = ()) -> Iterator[Path]:
    yield path
    steps = data if isinstance(data, dict) else range(len(data)) if isinstance(data, list) else ()
    for step in steps:
        yield from _list_paths(data[step], (*path, step))


def _find(data: Any, path: Path) -> Any:
    for step in path:
        data = data[step]
    return data


def list_damaged(data: Any) -> Iterator[tuple[str, Any]]:
    """Yield copies of a recording in which one key or value is another, and what is: the call is still in them."""
    for path in _list_paths(data):
        if not path:
            continue
        value, last = _find(data, path), path[-1]
        values: list[Any] = [[value], {"value": value}, json.dumps(value)]
        values += [{str(index): item for index, item in enumerate(value)}] if isinstance(value, list) else []
        values += [[[item] for item in value]] if isinstance(value, list) else []
        values += ["", value.upper(), f"{value}x", 7] if isinstance(value, str) else []
        for new in (*values, None):
            damaged = copy.deepcopy(data)
            _find(damaged, path[:-1])[last] = new
            yield f"{path}: {json.dumps(new)[:40]}", damaged
        for name in (f"{last}s", last.upper(), last.title(), last[:-1]) if isinstance(last, str) else ():
            damaged = copy.deepcopy(data)
            holder = _find(damaged, path[:-1])
            renamed = {name if key == last else key: item for key, item in holder.items()}
            holder.clear()
            holder.update(renamed)
            yield f"{path}: {name}", damaged
