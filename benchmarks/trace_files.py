"""Texts of trace files, in all formats that evalkit reads, that hold n of something. `FILES` lists them.

bench_bounds.py takes the time of reading them, and a test counts the lines of Python that it takes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

Data = dict[str, Any]
USER, DONE = {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Done."}


# Spans of OpenTelemetry, by the conventions for generative AI.


def to_attributes(values: Data) -> list[Data]:
    return [{"key": key, "value": {"stringValue": value}} for key, value in values.items()]


def write_spans(spans: list[Data], resource: Data | None = None) -> str:
    """Return OTLP/JSON: one trace, a span each millisecond."""
    written = [
        {
            "traceId": "t",
            "spanId": f"s{number}",
            "parentSpanId": span.pop("parent", ""),
            "startTimeUnixNano": str(number * 1_000_000),
            "endTimeUnixNano": str(number * 1_000_000 + 1),
            "attributes": to_attributes(span),
        }
        for number, span in enumerate(spans, 1)
    ]
    of_resource = {"resource": {"attributes": to_attributes(resource or {})}, "scopeSpans": [{"spans": written}]}
    return json.dumps({"resourceSpans": [of_resource]})


def chat(asked: list[Data], replied: Data, **attributes: str) -> Data:
    messages = {"gen_ai.input.messages": json.dumps(asked), "gen_ai.output.messages": json.dumps([replied])}
    return {"gen_ai.operation.name": "chat", **messages, **attributes}


def ask(*numbers: int) -> Data:
    parts = [{"type": "tool_call", "id": f"c{n}", "name": "f", "arguments": {"a": n}} for n in numbers]
    return {"role": "assistant", "parts": parts}


def answer(number: int) -> Data:
    return {"role": "tool", "parts": [{"type": "tool_call_response", "id": f"c{number}", "response": {"b": number}}]}


def tool(number: int, *, has_result: bool = True, has_id: bool = True) -> Data:
    arguments, result = json.dumps({"a": number}), json.dumps({"b": number})
    return {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "f",
        "gen_ai.tool.call.arguments": arguments,
        **({"gen_ai.tool.call.id": f"c{number}"} if has_id else {}),
        **({"gen_ai.tool.call.result": result} if has_result else {}),
    }


def list_turns(n: int) -> Iterator[Data]:
    """Yield turns with a call each; a request holds the last answer alone."""
    for number in range(n):
        yield chat([USER] if number == 0 else [answer(number - 1)], ask(number))
        yield tool(number)


def write_unanswered(n: int) -> str:
    return write_spans([*(chat([USER], ask(number)) for number in range(n)), chat([USER], DONE)])


def write_parallel(n: int) -> str:
    tools = (tool(number, has_id=False) for number in reversed(range(n)))
    return write_spans([chat([USER], ask(*range(n))), *tools, chat([USER], DONE)])


def write_late_answers(n: int) -> str:
    """Return spans of functions without results, which stand in the last request."""
    asked = ask(*range(n))
    tools = (tool(number, has_result=False) for number in range(n))
    last = chat([USER, asked, *(answer(number) for number in reversed(range(n)))], DONE)
    return write_spans([chat([USER], asked), *tools, last])


def write_lost_calls(n: int) -> str:
    """Return a request with calls whose replies have no spans."""
    messages = [message for number in range(n) for message in (ask(number), answer(number))]
    return write_spans([chat([USER], DONE), chat([USER, *messages], DONE)])


def write_openinference(n: int) -> str:
    span = {"openinference.span.kind": "LLM"}
    for number in range(n):
        root = f"llm.input_messages.{number}.message"
        span |= {f"{root}.role": "assistant" if number % 2 else "user", f"{root}.content": "Hi"}
    return write_spans([span | {f"llm.output_messages.0.message.{key}": value for key, value in DONE.items()}])


def write_jaeger(n: int) -> str:
    """Return spans of one process with as many tags."""
    tags = [{"key": key, "value": value} for key, value in chat([USER], DONE).items()]
    spans = [
        {"traceID": "t", "spanID": f"s{number}", "processID": "p", "startTime": number, "duration": 1, "tags": tags}
        for number in range(n)
    ]
    process = {"tags": [{"key": f"k{number}", "value": "v"} for number in range(n)]}
    return json.dumps({"data": [{"traceID": "t", "processes": {"p": process}, "spans": spans}]})


# Requests to models, and what agents write down.


def ask_for(*numbers: int) -> Data:
    calls = [
        {"id": f"c{n}", "type": "function", "function": {"name": "f", "arguments": f'{{"a": {n}}}'}} for n in numbers
    ]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def answer_call(number: int) -> Data:
    return {"role": "tool", "tool_call_id": f"c{number}", "content": f'{{"b": {number}}}'}


def write_chat(*messages: Data) -> str:
    return json.dumps({"messages": [USER, *messages, DONE]})


def write_claude_code(n: int) -> str:
    messages = [USER]
    for number in range(n):
        call = {"type": "tool_use", "id": f"c{number}", "name": "f", "input": {"a": number}}
        result = {"type": "tool_result", "tool_use_id": f"c{number}", "content": "1"}
        messages += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    records = ({"sessionId": "s", "uuid": str(number), "message": m} for number, m in enumerate([*messages, DONE]))
    return "\n".join(map(json.dumps, records))


def show_time(number: int) -> str:
    return f"2026-01-01T{number // 3600:02}:{number // 60 % 60:02}:{number % 60:02}+00:00"


def write_langfuse(n: int) -> str:
    observations: list[Data] = []
    for number in range(n):
        first, second = (
            {"id": f"{kind}{number}", "startTime": show_time(2 * number + i)} for i, kind in enumerate("gt")
        )
        asked = [USER] if number == 0 else [answer_call(number - 1)]
        observations.append({**first, "type": "GENERATION", "input": asked, "output": ask_for(number)})
        observations.append({**second, "type": "TOOL", "name": "f", "input": {"a": number}, "output": {"b": number}})
    metadata = {f"k{number}": "v" for number in range(n)}
    return json.dumps({"id": "t", "metadata": metadata, "observations": observations})


def write_langsmith(n: int) -> str:
    runs: list[Data] = []
    for number in range(n):
        first, second = (
            {"id": f"{kind}{number}", "start_time": show_time(2 * number + i)} for i, kind in enumerate("gt")
        )
        runs.append({**first, "run_type": "llm", "inputs": {"messages": [USER]}, "outputs": ask_for(number)})
        runs.append({**second, "run_type": "tool", "name": "f", "inputs": {"a": number}, "outputs": {"output": "1"}})
    return json.dumps({"id": "r", "trace_id": "t", "run_type": "chain", "child_runs": runs})


def write_adk(n: int) -> str:
    uses = [{"id": f"c{number}", "name": "f", "args": {"a": number}} for number in range(n)]
    answers = [{"id": use["id"], "name": "f", "response": {"b": 1}} for use in reversed(uses)]
    invocation = {
        "user_content": {"parts": [{"text": "Hi"}]},
        "intermediate_data": {"tool_uses": uses, "tool_responses": answers},
        "final_response": {"parts": [{"text": "Done."}]},
    }
    return json.dumps({"eval_set_id": "e", "eval_cases": [{"eval_id": "a", "conversation": [invocation]}]})


FILES: dict[str, Callable[[int], str]] = {
    "spans: turns with a call": lambda n: write_spans([*list_turns(n), chat([answer(n - 1)], DONE)]),
    "spans: unanswered calls": write_unanswered,
    "spans: calls in one reply": write_parallel,
    "spans: answers in a later request": write_late_answers,
    "spans: calls without their replies": write_lost_calls,
    "spans: calls by code": lambda n: write_spans([*map(tool, range(n)), chat([USER], DONE)]),
    "spans: each within the other": lambda n: write_spans(
        [{**chat([USER], DONE), "parent": f"s{i}"} for i in range(n)]
    ),
    "spans: cases in one trace": lambda n: write_spans(
        [chat([USER], DONE, **{"evalkit.case_id": f"a_{number}"}) for number in range(n)]
    ),
    "spans: attributes of their resource": lambda n: write_spans(
        [chat([USER], DONE) for _ in range(n)], {f"k{number}": "v" for number in range(n)}
    ),
    "spans: messages of OpenInference": write_openinference,
    "spans: Jaeger": write_jaeger,
    "chat: messages": lambda n: write_chat(*[DONE, USER] * n),
    "chat: messages of one side": lambda n: write_chat(*[USER] * n, *[DONE] * n),
    "chat: calls in one reply": lambda n: write_chat(ask_for(*range(n)), *map(answer_call, reversed(range(n)))),
    "chat: functions as roles": lambda n: write_chat(ask_for(*range(n)), *[{"role": "f", "content": "1"}] * n),
    "chat: a conversation a line": lambda n: "\n".join([write_chat()] * n),
    "Claude Code: turns with a call": write_claude_code,
    "Langfuse: turns with a call": write_langfuse,
    "LangSmith: turns with a call": write_langsmith,
    "ADK: calls": write_adk,
}
