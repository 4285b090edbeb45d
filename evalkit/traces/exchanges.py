"""Requests to models' services and the replies: of OpenAI, Anthropic and Gemini."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from msgspec.structs import replace

from evalkit.jsonvalue import JsonDict, JsonObject, filter_mappings
from evalkit.text.format import cut_between_words
from evalkit.traces.log_formats import (
    MENTIONS_CALLS,
    Conversation,
    Event,
    FunctionAnswer,
    LoggedCall,
    LoggedMessage,
    ModelReply,
    Parts,
    UnreadableLogError,
    join_texts,
    list_objects,
    merge_events,
    read_arguments,
    read_usage,
    read_value,
)
from evalkit.traces.messages import read_call, read_messages
from evalkit.wire import anthropic_messages, openai_responses
from evalkit.wire.records import Answer, Call, Text, Unread


def read_chat(request: JsonObject, response: JsonObject) -> Parts:
    """Read OpenAI's chat completions, ``{"messages": [...]}``; `response` adds the first choice."""
    return read_messages([*_list_items(request["messages"]), *list_choice(response)])


def _list_items(value: object) -> list[object]:
    if isinstance(value, list):
        return value[0] if value and isinstance(value[0], list) else value  # LangChain asks in batches
    return [{"role": "user", "content": value}] if isinstance(value, str) else []


def list_choice(response: JsonObject) -> Iterator[JsonDict]:
    """Yield the message of the first choice, with the reason for its end. Raise UnreadableLogError if it has none."""
    choice = next(filter_mappings(response.get("choices")), None)
    if choice is None:
        return
    message = choice.get("message")
    if isinstance(message, Mapping):
        yield {"finish_reason": choice.get("finish_reason"), **message, "role": "assistant"}
    elif isinstance(choice.get("text"), str):
        yield {"role": "assistant", "content": choice["text"]}
    else:
        raise UnreadableLogError("its first choice holds no message: a piece of a stream, not the whole reply")


_SKIPPED_ITEMS = ("reasoning", "mcp_list_tools", "mcp_approval_request", "mcp_approval_response", "item_reference")


def read_responses(request: JsonObject, response: JsonObject) -> Parts:
    """Read OpenAI's responses API, ``{"input": [...]}``; `response` adds its output."""
    raw_input = request["input"]
    inputs = [{"role": "user", "content": raw_input}] if isinstance(raw_input, str) else raw_input
    system = [str(request.get("instructions") or "")]
    events: list[Event] = []
    for item in (*list_objects({"input": inputs}, "input"), *list_objects(response, "output")):
        kind = item.get("type", "message")
        if not isinstance(kind, str):
            raise UnreadableLogError(f"an item has the type {cut_between_words(json.dumps(kind))}")
        if kind == "message":
            told, said = read_messages([item])
            system.append(told)
            events += said
        elif kind not in _SKIPPED_ITEMS:
            events += _read_item(kind, item)
    return "\n\n".join(filter(None, system)), events


def _read_item(kind: str, item: JsonObject) -> Iterator[Event]:
    """Read a call, or an answer. What the service called by itself ("web_search_call") is both."""
    call_id = item.get("call_id") or item.get("id")
    call_id = call_id if isinstance(call_id, str) else None
    if kind.endswith("_output"):
        output = item.get("output")
        is_text = isinstance(output, str) or any("text" in block for block in filter_mappings(output))
        yield FunctionAnswer(read_value(join_texts(output)) if is_text else output, call_id=call_id)
    elif kind in ("function_call", "custom_tool_call"):
        is_custom = kind == "custom_tool_call"
        call = read_call({**item, "type": "custom" if is_custom else kind})
        yield ModelReply("", (LoggedCall(call.name, call.arguments, call_id),))
    elif kind == "mcp_call":
        call = read_call(item)
        yield ModelReply("", (LoggedCall(call.name, call.arguments, call_id),))
        yield FunctionAnswer(
            read_value(item.get("error") or item.get("output")), call_id=call_id, failed=bool(item.get("error"))
        )
    elif kind.endswith("_call"):
        arguments = item.get("action")
        if not isinstance(arguments, Mapping):
            arguments = {key: item[key] for key in ("queries", "code", "operation") if item.get(key) is not None}
        yield ModelReply("", (LoggedCall(kind.removesuffix("_call"), arguments, call_id),))
        if "call_id" not in item:  # the service answered it
            found = next((item[key] for key in ("results", "outputs") if item.get(key) is not None), None)
            yield FunctionAnswer(found, call_id=call_id, failed=item.get("status") == "failed")
    elif "arguments" in item or "input" in item:
        raise UnreadableLogError(
            f"an item of type {cut_between_words(kind, 40)!r} could be a call, and is of no known form"
        )


def is_anthropic(request: JsonObject) -> bool:
    """Return whether ``messages`` are Anthropic's: the system text stands beside them, calls and results are blocks."""
    blocks = (b for m in filter_mappings(request.get("messages")) for b in filter_mappings(m.get("content")))
    return (
        "system" in request
        or any("input_schema" in tool for tool in filter_mappings(request.get("tools")))
        or any(block.get("type") in ("tool_use", "tool_result") for block in blocks)
    )


def read_anthropic(request: JsonObject, response: JsonObject) -> Parts:
    """Read Anthropic's messages, ``{"messages": [...]}``; `response` adds its content."""
    messages = _list_items(request["messages"])
    content = response.get("content")
    if isinstance(content, list):
        messages = [
            *messages,
            {"role": "assistant", "content": content, "finish_reason": response.get("stop_reason")},
        ]
    system, events = read_messages(messages)
    return "\n\n".join(filter(None, (join_texts(request.get("system")), system))), events


def read_gemini(request: JsonObject, response: JsonObject) -> Parts:
    """Read Gemini's ``{"contents": [...]}``, as on the wire or of the Python client; `response` adds a candidate."""
    raw_contents = request["contents"]
    contents: list[JsonObject]
    if isinstance(raw_contents, str):
        contents = [{"role": "user", "parts": [{"text": raw_contents}]}]
    else:
        contents = [*list_objects(request, "contents")]
    candidates = [*filter_mappings(response.get("candidates")), response]  # ADK records the first one without the list
    reason = str(candidates[0].get("finishReason", candidates[0].get("finish_reason")))
    if reason.endswith("MALFORMED_FUNCTION_CALL"):
        raise UnreadableLogError(f"the model's last reply ended with {reason}: its call is not on record")
    if isinstance(content := candidates[0].get("content"), Mapping):
        contents.append({"role": "model", **content})
    events: list[Event] = []
    for content in contents:
        author = content.get("author")  # of an event of ADK's, as the two below
        reply = ModelReply(
            agent=author if isinstance(author, str) else None,
            model=content.get("model") if isinstance(content.get("model"), str) else None,
            usage=read_usage(content.get("usage")),
        )
        is_reply = content.get("role") in ("model", "assistant")
        if "parts" not in content and MENTIONS_CALLS.search(json.dumps({**content, "role": ""})):
            raise UnreadableLogError(f"a content has no 'parts'; got {', '.join(map(repr, content))}")
        for part in list_objects(content, "parts"):
            event = _read_part(part, reply, is_reply=is_reply)
            events += [event] if event is not None else []
    config = request.get("config")
    holders = [request, config] if isinstance(config, Mapping) else [request]
    names = ("systemInstruction", "system_instruction")
    system = next((holder[name] for holder in holders for name in names if holder.get(name)), None)
    return join_texts(system.get("parts") if isinstance(system, Mapping) else system), events


def _read_part(part: JsonObject, reply: ModelReply, *, is_reply: bool) -> Event | None:
    """Read a part of a content; None for thoughts and media. Texts are the user's but for those of a reply."""
    answer = part.get("functionResponse") or part.get("function_response")
    call = part.get("functionCall") or part.get("function_call")
    code = part.get("executableCode") or part.get("executable_code")
    outcome = part.get("codeExecutionResult") or part.get("code_execution_result")
    if isinstance(answer, Mapping):
        # Clients wrap what is no object as {"result": ...} or "output", failures as "error".
        value = answer.get("response")
        failed = isinstance(value, Mapping) and value.keys() == {"error"}
        if isinstance(value, Mapping) and len(value) == 1:
            value = next((value[key] for key in ("result", "output", "error") if key in value), value)
        return FunctionAnswer(value, answer.get("id"), answer.get("name"), failed)
    if isinstance(call, Mapping):
        name = str(call.get("name"))
        return replace(reply, calls=(LoggedCall(name, read_arguments(call.get("args"), name), call.get("id")),))
    if isinstance(code, Mapping):
        return replace(reply, calls=(LoggedCall("code_execution", code),))
    if isinstance(outcome, Mapping):
        return FunctionAnswer(outcome, name="code_execution")
    if is_reply and (key := next((key for key in part if part[key] and MENTIONS_CALLS.search(key)), None)):
        raise UnreadableLogError(
            f"a part of a reply holds {key!r} in no known form: {cut_between_words(json.dumps(part[key]))}"
        )
    if not isinstance(part.get("text"), str) or part.get("thought"):
        return None
    return replace(reply, text=part["text"]) if is_reply else LoggedMessage(part["text"])


def _read_by_wire(api: Any, request: JsonObject, response: JsonObject) -> Parts:
    """Read a request and the reply to it by the API's own module."""
    if not any(key in request for key in ("messages", "input")):
        raise KeyError("messages")
    read = api.read_request(request)
    items = [*read.items]
    finish: str | None = None
    if response:
        reply = api.read_reply(response)
        items += reply.items
        finish = reply.end
    system = [str(request.get("instructions") or ""), join_texts(request.get("system"))]
    events: list[Event] = []
    for item in items:
        if isinstance(item, Unread):
            raise UnreadableLogError(f"it holds {item.what} at {item.place}, in no known form: {item.excerpt}")
        if isinstance(item, Call):
            if item.malformed:
                raise UnreadableLogError(f"the arguments of {item.name} are no JSON object: {item.malformed}")
            events.append(ModelReply("", (LoggedCall(item.name, item.arguments, item.call_id),)))
        elif isinstance(item, Answer):
            events.append(FunctionAnswer(item.value, item.call_id, item.name, item.is_error))
        elif isinstance(item, Text) and item.role in ("system", "developer"):
            system.append(item.text)
        elif isinstance(item, Text):
            events.append(ModelReply(item.text) if item.role == "assistant" else LoggedMessage(item.text))
    if response and not any(isinstance(event, ModelReply) for event in events[-1:]) and finish:
        events.append(ModelReply(""))
    return "\n\n".join(filter(None, system)), events


READERS: dict[str, Callable[[JsonObject, JsonObject], Parts]] = {
    "openai": read_chat,
    "responses": partial(_read_by_wire, openai_responses),
    "gemini": read_gemini,
    "anthropic": partial(_read_by_wire, anthropic_messages),
}
_KEYS = {"messages": "openai", "contents": "gemini", "input": "responses"}


def find_form(request: JsonObject) -> str | None:
    """Return the format of a request by its keys; None if it is none."""
    form = next((form for key, form in _KEYS.items() if isinstance(request.get(key), list | str)), None)
    return "anthropic" if form == "openai" and is_anthropic(request) else form


def read_exchange(form: str, request: JsonObject, response: JsonObject, source: str) -> Conversation:
    """Return the conversation of a request and the reply to it. Raise UnreadableLogError where there is none."""
    try:
        system, events = READERS[form](request, response)
    except KeyError as error:
        raise UnreadableLogError(
            f"a record of format '{form}' has no {error}; got {', '.join(map(repr, request))}"
        ) from None
    events = [event for event in events if not isinstance(event, LoggedMessage) or event.text]
    if not any(isinstance(event, ModelReply) for event in events):
        raise UnreadableLogError("there is no reply of a model in it")
    merged = merge_events(events)
    usage, model = read_usage(response.get("usage") or response.get("usageMetadata")), response.get("model")
    if isinstance(last := merged[-1], ModelReply) and (usage or isinstance(model, str)):
        last = replace(last, usage=usage or last.usage, model=model if isinstance(model, str) else last.model)
        merged = (*merged[:-1], last)
    return Conversation(
        events=merged,
        system=system,
        functions=tuple(list_tools(request)),
        source=source,
        is_request=True,
    )


def list_tools(request: JsonObject) -> list[JsonObject]:
    """List the declarations of a request, each as its service takes it."""
    tools = [*filter_mappings(request.get("tools")), *filter_mappings(request.get("functions"))]
    config = request.get("config")
    return [*tools, *filter_mappings(config.get("tools"))] if isinstance(config, Mapping) else tools
