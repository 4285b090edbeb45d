"""Log files: JSON or JSON Lines, whose formats are recognized by the keys of their records.

Agent kits and tracing services export requests to models and the replies to them: one for each turn of the model, which
repeats what went before; the longest is kept.

Traces of OpenTelemetry are spans in OTLP/JSON, by two conventions. By those for generative AI, replies and calls come
from the messages of ``chat`` spans, answers from ``execute_tool`` spans; where those are missing, both come from the
messages of the last ``chat`` span, which hold what went before. By OpenInference, all comes from the messages of the
``LLM`` spans.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct

from evalkit.errors import UsageError
from evalkit.importers.log_formats import (
    READERS,
    Conversation,
    Event,
    FunctionAnswer,
    LoggedCall,
    LoggedMessage,
    ModelReply,
    UnreadableLogError,
    filter_mappings,
    find_form,
    merge_events,
    parse_json,
    read_arguments,
    read_exchange,
    read_value,
)
from evalkit.jsonvalue import JsonDict, JsonObject


class Exchange(Struct, frozen=True):
    """A request in one of the formats that are read, the reply, and where they stand."""

    form: str
    request: JsonObject
    response: JsonObject
    source: str


class Export(Struct, frozen=True):
    """A kind of export. `missing` says what a file lacks whose records are of this kind and hold no exchange."""

    fits: Callable[[JsonObject], bool]
    read: Callable[[JsonObject, str], Iterator[Exchange]]
    missing: str


# Google ADK: eval sets (of both generations) and sessions.


def _get(data: JsonObject, name: str) -> object:
    """Return the value of a key that is written as in Python, or in camelCase."""
    first, *rest = name.split("_")
    return data.get(name, data.get(first + "".join(map(str.title, rest))))


def _is_of_adk(record: JsonObject) -> bool:
    turns, events = [*filter_mappings(record.get("data"))], [*filter_mappings(record.get("events"))]
    is_old = bool(turns) and all("query" in turn for turn in turns)
    is_session = bool(events) and all("author" in event for event in events)
    return is_old or is_session or any(_get(record, key) is not None for key in ("eval_cases", "eval_id"))


def _read_adk(record: JsonObject, source: str) -> Iterator[Exchange]:
    cases = [*filter_mappings(_get(record, "eval_cases"))] or [record]
    for case in cases:
        name = _get(case, "eval_id") or case.get("name")
        contents: list[JsonObject] = []
        request: JsonDict = {"contents": contents}
        events = [event for event in filter_mappings(case.get("events")) if event.get("partial") is not True]
        contents += [event["content"] for event in events if isinstance(event.get("content"), Mapping)]
        for turn in filter_mappings(case.get("data")):
            contents += _read_old_turn(turn)
        for invocation in filter_mappings(case.get("conversation")):
            contents += _read_invocation(invocation)
            details = _get(invocation, "app_details")
            agents = _get(details, "agent_details") if isinstance(details, Mapping) else None
            agent = next(iter(agents.values()), None) if isinstance(agents, Mapping) else None
            if isinstance(agent, Mapping):
                request["systemInstruction"] = {"parts": [{"text": str(agent.get("instructions") or "")}]}
                request["tools"] = _get(agent, "tool_declarations")
        if contents:
            yield Exchange("gemini", request, {}, f"{source}, {name}" if isinstance(name, str) and name else source)


def _read_invocation(invocation: JsonObject) -> Iterator[JsonObject]:
    """Yield the contents of a turn of the user: the message, calls with their answers, the final response."""
    between = _get(invocation, "intermediate_data")
    between = between if isinstance(between, Mapping) else {}
    question, reply = _get(invocation, "user_content"), _get(invocation, "final_response")
    if isinstance(question, Mapping):
        yield {**question, "role": "user"}
    for event in filter_mappings(_get(between, "invocation_events")):
        if isinstance(event.get("content"), Mapping):
            yield event["content"]
    answers = [*filter_mappings(_get(between, "tool_responses"))]
    for call in filter_mappings(_get(between, "tool_uses")):
        yield {"role": "model", "parts": [{"functionCall": call}]}
        by_id = [answer for answer in answers if call.get("id") and answer.get("id") == call["id"]]
        by_name = [answer for answer in answers if answer.get("name") == call.get("name")]
        for answer in (by_id or by_name)[:1]:
            answers.remove(answer)
            yield {"role": "user", "parts": [{"functionResponse": answer}]}
    if isinstance(reply, Mapping):
        yield {**reply, "role": "model"}


def _read_old_turn(turn: JsonObject) -> Iterator[JsonObject]:
    """Yield the contents of ``{query, expected_tool_use, reference}``."""
    yield {"role": "user", "parts": [{"text": str(turn.get("query") or "")}]}
    for use in filter_mappings(turn.get("expected_tool_use")):
        name = use.get("tool_name")
        yield {"role": "model", "parts": [{"functionCall": {"name": name, "args": use.get("tool_input")}}]}
        if "mock_tool_output" in use:
            answer = {"name": name, "response": {"result": use["mock_tool_output"]}}
            yield {"role": "user", "parts": [{"functionResponse": answer}]}
    if turn.get("reference"):
        yield {"role": "model", "parts": [{"text": str(turn["reference"])}]}


# LangSmith: runs, alone or with the runs below them.


def _read_langsmith(record: JsonObject, source: str) -> Iterator[Exchange]:
    for run in filter_mappings(record.get("child_runs")):
        yield from _read_langsmith(run, source)
    if record.get("run_type") != "llm":
        return
    extra = record.get("extra")
    parameters = extra.get("invocation_params") if isinstance(extra, Mapping) else None
    tools = parameters.get("tools", parameters.get("functions")) if isinstance(parameters, Mapping) else None
    yield _build_exchange(record.get("inputs"), record.get("outputs"), tools, _locate(source, "run", record))


# Langfuse: observations, alone or inside of their trace.


def _is_of_langfuse(record: JsonObject) -> bool:
    ids = (_get(record, key) for key in ("trace_id", "parent_observation_id"))
    is_observation = "type" in record and any(value is not None for value in ids)
    return is_observation or isinstance(record.get("observations"), list)


def _read_langfuse(record: JsonObject, source: str) -> Iterator[Exchange]:
    for observation in filter_mappings(record.get("observations")):
        yield from _read_langfuse(observation, source)
    if str(record.get("type")).upper() != "GENERATION":
        return
    holders = [record.get("metadata"), _get(record, "model_parameters")]
    tools = next((holder["tools"] for holder in holders if isinstance(holder, Mapping) and "tools" in holder), None)
    place = _locate(source, "observation", record)
    yield _build_exchange(read_value(record.get("input")), read_value(record.get("output")), read_value(tools), place)


def _locate(source: str, noun: str, record: JsonObject) -> str:
    return f"{source}, {noun} {record['id']}" if isinstance(record.get("id"), str) else source


def _build_exchange(inputs: object, outputs: object, tools: object, source: str) -> Exchange:
    """Return the exchange of a model's inputs and outputs, which may be a service's or LangChain's own."""
    request: JsonDict = {"messages": inputs} if isinstance(inputs, list) else {}
    if isinstance(inputs, Mapping):
        request = dict(inputs)
    elif isinstance(inputs, str):
        request = {"messages": [{"role": "user", "content": inputs}]}
    messages = request.get("messages")
    if isinstance(messages, list):
        batch = messages[0] if messages and isinstance(messages[0], list) else messages
        request["messages"] = [_to_chat_message(message) for message in filter_mappings(batch)]
    if tools is not None and "tools" not in request:
        request["tools"] = tools
    form = find_form(request) or "openai"
    if isinstance(outputs, Mapping) and form != "openai":
        return Exchange(form, request, outputs, source)
    reply = _find_reply(outputs)
    return Exchange(form, request, {"choices": [{"message": reply}]} if reply is not None else {}, source)


def _find_reply(outputs: object) -> JsonDict | None:
    """Return the message in whatever a model's outputs are wrapped in."""
    if isinstance(outputs, str):
        return {"role": "assistant", "content": outputs}
    if isinstance(outputs, list):
        return _find_reply(outputs[-1]) if outputs else None
    if not isinstance(outputs, Mapping):
        return None
    for key in ("choices", "generations"):  # several are offered, the first is taken
        if isinstance(outputs.get(key), list) and outputs[key]:
            first = outputs[key][0]
            return _find_reply(first[0] if isinstance(first, list) and first else first)
    inner = next((outputs[key] for key in ("message", "messages", "output") if outputs.get(key)), None)
    if inner is not None:
        return _find_reply(inner)
    if "role" in outputs or "kwargs" in outputs or "type" in outputs:
        return {**_to_chat_message(outputs), "role": "assistant"}
    text = outputs.get("text", outputs.get("content"))
    return {"role": "assistant", "content": text} if isinstance(text, str) else None


_ROLES = {"human": "user", "ai": "assistant", "aimessagechunk": "assistant", "function": "tool"}


def _to_chat_message(message: JsonObject) -> JsonDict:
    """Return a message of LangChain, in any of its three forms, as one of chat completions; others as they are."""
    kind, body = message.get("type"), message
    if isinstance(message.get("kwargs"), Mapping):  # {"lc": 1, "id": [..., "HumanMessage"], "kwargs": {...}}
        path, body = message.get("id"), message["kwargs"]
        kind = path[-1] if isinstance(path, list) and path else body.get("type")
    elif isinstance(message.get("data"), Mapping):
        body = message["data"]
    elif "role" in message:
        return dict(message)
    name = str(kind).lower()
    name = name.removesuffix("message") or name
    more = body.get("additional_kwargs")
    calls = [
        {"id": call.get("id"), "function": {"name": call.get("name"), "arguments": call.get("args")}}
        for call in filter_mappings(body.get("tool_calls"))
    ]
    result = {"role": _ROLES.get(name, name), "content": body.get("content"), "tool_calls": calls}
    if not calls and isinstance(more, Mapping):
        result["tool_calls"] = more.get("tool_calls")
    return {**result, **{key: body[key] for key in ("tool_call_id", "name") if key in body}}


EXPORTS: dict[str, Export] = {
    "adk": Export(_is_of_adk, _read_adk, "no conversation in what ADK exported; expected eval_cases, events or turns"),
    "langsmith": Export(
        lambda record: "run_type" in record,
        _read_langsmith,
        "no run of a model in it; export the runs with run_type 'llm', or traces with their child_runs",
    ),
    "langfuse": Export(
        _is_of_langfuse,
        _read_langfuse,
        "no generation in it; export the observations of type GENERATION, or traces with their observations",
    ),
}


# Traces of OpenTelemetry: spans in OTLP/JSON.

_MODEL = ("chat", "generate_content", "text_completion")  # operations of spans
_KIND = "openinference.span.kind"


def is_export(record: object) -> bool:
    """Return whether a record is an OTLP/JSON export request."""
    return isinstance(record, Mapping) and "resourceSpans" in record


def read_spans(records: list[JsonObject], source: str) -> Iterator[Conversation | UsageError]:
    """Yield a conversation for each trace of a model in OTLP/JSON export requests, or why there is none in it.

    By OpenInference each span of a model holds what went before, and is a conversation of its own.
    """
    traces: dict[str, list[_Span]] = {}
    for record in records:
        for of_resource in filter_mappings(record.get("resourceSpans")):
            for of_scope in filter_mappings(of_resource.get("scopeSpans")):
                for data in filter_mappings(of_scope.get("spans")):
                    traces.setdefault(str(data.get("traceId")), []).append(_Span(data))
    count = 0
    for trace, spans in traces.items():
        spans.sort(key=lambda span: (span.start, span.end))
        place = f"{source}, trace {trace}"
        readers = [partial(_read_model_span, span) for span in spans if span.attributes.get(_KIND) == "LLM"]
        if not readers and any(span.operation in _MODEL for span in spans):
            readers = [partial(_read_trace, spans)]
        count += len(readers)
        for reader in readers:
            try:
                yield reader(place)
            except UnreadableLogError as error:
                yield UsageError(f"{place}: {error}")
    if not count:
        total = f"its {len(traces)} trace{'s have' if len(traces) != 1 else ' has'}"
        yield UsageError(
            f"{source}: {total} no span of a model; expected spans with gen_ai.operation.name 'chat', "
            f"or with {_KIND} 'LLM'"
        )


class _Span:
    """A span with the attributes that matter here. Times are nanoseconds since 1970."""

    def __init__(self, data: JsonObject) -> None:
        self.attributes = {
            str(item.get("key")): _to_plain(item.get("value")) for item in filter_mappings(data.get("attributes"))
        }
        self.operation = self.attributes.get("gen_ai.operation.name")
        self.start, self.end = _to_integer(data.get("startTimeUnixNano")), _to_integer(data.get("endTimeUnixNano"))

    def get_json(self, name: str) -> Any:
        value = self.attributes.get(f"gen_ai.{name}")
        return read_value(value)


def _to_plain(value: object) -> Any:
    """Return an OTLP AnyValue as JSON data."""
    if not isinstance(value, Mapping) or not value:
        return None
    kind, inner = next(iter(value.items()))
    if kind in ("arrayValue", "kvlistValue"):
        items = filter_mappings(inner.get("values") if isinstance(inner, Mapping) else None)
        if kind == "arrayValue":
            return [_to_plain(item) for item in items]
        return {str(item.get("key")): _to_plain(item.get("value")) for item in items}
    return _to_integer(inner) if kind == "intValue" else inner


def _to_integer(value: object) -> int:
    """Return a 64-bit integer, which is text in OTLP/JSON; 0 for anything else."""
    return int(value) if isinstance(value, int) or (isinstance(value, str) and value.isdecimal()) else 0


def _read_trace(spans: list[_Span], source: str) -> Conversation:
    model = [span for span in spans if span.operation in _MODEL]
    agent = next((span for span in spans if span.operation == "invoke_agent"), model[0])
    tools = next((value for span in (agent, *model) if (value := span.get_json("tool.definitions"))), None)
    instructions = next((value for span in (agent, *model) if (value := span.get_json("system_instructions"))), None)
    if any(span.operation == "execute_tool" for span in spans):  # replies and answers by their times
        messages = agent.get_json("input.messages") or model[0].get_json("input.messages")
        events: list[Event] = [event for event in _read_events(messages) if isinstance(event, LoggedMessage)]
        for span in spans:
            if span.operation in _MODEL:
                events += _read_events(span.get_json("output.messages"))
            elif span.operation == "execute_tool":
                value, name = span.get_json("tool.call.result"), span.attributes.get("gen_ai.tool.name")
                call_id = span.attributes.get("gen_ai.tool.call.id")
                events.append(FunctionAnswer(value, call_id, name, failed="error.type" in span.attributes))
    else:
        events = [*_read_events(model[-1].get_json("input.messages"))]
        events += _read_events(model[-1].get_json("output.messages"))
    if not any(isinstance(event, ModelReply) for event in events):
        raise UnreadableLogError("its spans hold no messages; record them with content (gen_ai.output.messages)")
    return Conversation(
        events=merge_events(events),
        system="\n".join(str(part.get("content") or "") for part in filter_mappings(instructions)),
        functions=tuple(filter_mappings(tools)),
        source=source,
    )


def _read_events(messages: object) -> Iterator[Event]:
    for message in filter_mappings(messages):
        by_model = message.get("role") in ("assistant", "model")
        for part in filter_mappings(message.get("parts")):
            kind = part.get("type")
            if kind == "text":
                yield (
                    ModelReply(str(part.get("content") or ""))
                    if by_model
                    else LoggedMessage(str(part.get("content") or ""))
                )
            elif kind == "tool_call":
                name = str(part.get("name"))
                yield ModelReply("", (LoggedCall(name, read_arguments(part.get("arguments"), name), part.get("id")),))
            elif kind == "tool_call_response":
                value = part["response"] if "response" in part else part.get("result")
                yield FunctionAnswer(read_value(value), call_id=part.get("id"), name=part.get("name"))


def _read_model_span(span: _Span, source: str) -> Conversation:
    """Read a span of a model by OpenInference: ``llm.input_messages.0.message.role``, ..."""
    tree: JsonDict = {}
    for key, value in span.attributes.items():
        node = tree
        *parents, last = key.split(".")
        for part in parents:
            inner = node.setdefault(part, {})
            node = inner if isinstance(inner, dict) else {}
        node[last] = value
    llm: JsonObject = tree["llm"] if isinstance(tree.get("llm"), Mapping) else {}
    asked = [_to_span_message(item) for item in _list_numbered(llm.get("input_messages"), "message")]
    replied = [_to_span_message(item) for item in _list_numbered(llm.get("output_messages"), "message")]
    tools = [read_value(tool.get("json_schema")) for tool in _list_numbered(llm.get("tools"), "tool")]
    if asked or replied:
        choices = [{"message": message} for message in replied[:1]]
        return read_exchange("openai", {"messages": asked, "tools": tools}, {"choices": choices}, source)
    request, response = (read_value(span.attributes.get(f"{side}.value")) for side in ("input", "output"))
    form = find_form(request) if isinstance(request, Mapping) else None
    if form is None:
        raise UnreadableLogError("its spans hold no messages; record them with content (llm.input_messages)")
    tools = [*filter_mappings(request.get("tools")), *tools]
    return read_exchange(form, {**request, "tools": tools}, response if isinstance(response, Mapping) else {}, source)


def _list_numbered(value: object, name: str) -> list[JsonObject]:
    """Return the items of ``{"0": {name: {...}}, "1": ...}``, in the order of their numbers."""
    items = value if isinstance(value, Mapping) else {}
    numbers = sorted((key for key in items if str(key).isdecimal()), key=int)
    inner = [items[number].get(name) for number in numbers if isinstance(items[number], Mapping)]
    return [item for item in inner if isinstance(item, Mapping)]


def _to_span_message(message: JsonObject) -> JsonDict:
    """Return a message of OpenInference as one of chat completions."""
    calls = [
        {"id": call.get("id"), "function": call.get("function")}
        for call in _list_numbered(message.get("tool_calls"), "tool_call")
    ]
    texts = [part.get("text") for part in _list_numbered(message.get("contents"), "message_content")]
    content = message.get("content") or "\n".join(text for text in texts if isinstance(text, str))
    role = str(message.get("role"))
    return {
        "role": {"model": "assistant", "function": "tool"}.get(role, role),
        "content": content,
        "tool_calls": calls,
        "tool_call_id": message.get("tool_call_id"),
        "name": message.get("name"),
    }


# Files of logs.

FORMATS = (*READERS, "otel", *EXPORTS)
_LINES = (".jsonl", ".ndjson")
_MOST_LINES = 3  # that are no JSON, reported one by one
_WRAPPERS = (("request", "response"), ("body", "response"), ("kwargs", "output"))
_EXPECTED = (
    "expected {messages, tools}, {contents, tools}, {input, tools}, {request, response}, OTLP/JSON spans, "
    "or what ADK, LangSmith or Langfuse export"
)


def read_log(path: Path, form: str | None = None) -> Iterator[Conversation | UsageError]:
    """Yield the conversations in a file, and a UsageError for each record that is none; `form` is one of FORMATS.

    A record that another one continues (an agent logs every request, and each repeats what went before) is left out.
    """
    items = [*_read_records(path)]
    yield from (item for item in items if isinstance(item, UsageError))
    records = [item for item in items if not isinstance(item, UsageError)]
    exports = [record for _, record in records if is_export(record)]
    conversations: list[Conversation] = []
    if exports and form in (None, "otel"):
        results = [*read_spans(exports, path.name)]
        yield from (result for result in results if isinstance(result, UsageError))
        conversations += [result for result in results if not isinstance(result, UsageError)]
        records = [item for item in records if not is_export(item[1])]
    found: dict[str, list[Exchange]] = {}  # by the exports that they were in
    for source, record in records:
        export = None
        if isinstance(record, Mapping) and (form is None or form in EXPORTS):
            export = form or next((name for name, kind in EXPORTS.items() if kind.fits(record)), None)
        if export is not None:
            found.setdefault(export, []).extend(EXPORTS[export].read(record, source))
            continue
        try:
            conversations.append(_read_conversation(record, form, source))
        except UnreadableLogError as error:
            yield UsageError(f"{source}: {error}")
    for export, exchanges in found.items():
        if not exchanges:
            yield UsageError(f"{path.name}: {EXPORTS[export].missing}")
        for exchange in exchanges:
            try:
                conversations.append(read_exchange(exchange.form, exchange.request, exchange.response, exchange.source))
            except UnreadableLogError as error:
                yield UsageError(f"{exchange.source}: {error}")
    yield from select_longest(conversations)


def select_longest(conversations: list[Conversation]) -> list[Conversation]:
    """Return `conversations` without those that are the beginning of another one, and each once."""
    nodes: dict[tuple[int, str], int] = {}  # a trie, so that long conversations are not compared pair by pair
    continued: set[int] = set()
    ends: list[int] = []
    for conversation in conversations:
        node = 0
        for part in (conversation.system, *map(repr, conversation.events)):
            continued.add(node)
            node = nodes.setdefault((node, part), len(nodes) + 1)
        ends.append(node)
    last = {node: number for number, node in enumerate(ends)}
    return [
        conversation for n, conversation in enumerate(conversations) if ends[n] not in continued and last[ends[n]] == n
    ]


def _read_records(path: Path) -> Iterator[tuple[str, Any] | UsageError]:
    """Yield each record with its place, and an error for each line that is none."""
    try:
        text = path.read_text("utf-8-sig")
    except OSError as error:
        raise UsageError(f"{path}: can't be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: this is not UTF-8: byte {error.start}") from None
    try:
        data = None if path.suffix in _LINES else parse_json(text)
    except ValueError:
        data = None
    wrong = 0
    # Lines end with a line feed alone: JSON may hold U+2028 and its like as they are.
    for number, line in enumerate(text.split("\n") if data is None else (), 1):
        try:
            yield from [(f"{path.name}:{number}", parse_json(line))] if line.strip() else []
        except ValueError as error:
            wrong += 1
            if wrong <= _MOST_LINES:
                yield UsageError(f"{path.name}:{number}: this is no JSON: {error}")
    if wrong > _MOST_LINES:
        yield UsageError(f"{path.name}: {wrong - _MOST_LINES} more lines are no JSON")
    if data is None:
        return
    if isinstance(data, list) and EXPORTS["adk"].fits({"data": data}):
        yield path.name, {"data": data}
    elif isinstance(data, list) and not any(isinstance(item, Mapping) and "role" in item for item in data):
        yield from ((f"{path.name}, record {number}", item) for number, item in enumerate(data, 1))
    else:
        yield path.name, {"messages": data} if isinstance(data, list) else data


def _read_conversation(record: object, form: str | None, source: str) -> Conversation:
    if not isinstance(record, Mapping):
        raise UnreadableLogError(f"a record is a JSON object, got {json.dumps(record)[:60]}")
    request, response = record, record
    for outer, answer in _WRAPPERS:  # where a log keeps both
        inner = record.get(outer)
        if isinstance(inner, Mapping) and find_form(inner) is not None:
            request = inner
            response = record[answer] if isinstance(record.get(answer), Mapping) else {}
            break
    form = form or find_form(request)
    if form is None or form == "otel":
        raise UnreadableLogError(f"no conversation in {', '.join(map(repr, record)) or 'an empty object'}; {_EXPECTED}")
    return read_exchange(form, request, response, source)
