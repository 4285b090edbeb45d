"""Requests to models' services and the replies to them.

The modules of the services' own APIs read them first (`evalkit.wire`). What frameworks and tracing services write down
in the form of chat completions, and what those modules leave unread, is a matter for the dialects of messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import ModuleType

from msgspec.structs import replace

from evalkit.jsonvalue import JsonDict, JsonObject, filter_mappings
from evalkit.streaming import to_wire_keys
from evalkit.traces.log_formats import (
    Conversation,
    Event,
    FunctionAnswer,
    LoggedCall,
    LoggedMessage,
    ModelReply,
    Parts,
    UnreadableLogError,
    drop_requests,
    join_texts,
    list_objects,
    merge_events,
    read_usage,
)
from evalkit.traces.messages import read_messages
from evalkit.wire import anthropic_messages, gemini_content, openai_responses
from evalkit.wire.records import Answer, Call, Item, Reply, Text, Unread

CHAT, RESPONSES, GEMINI, ANTHROPIC = "openai", "responses", "gemini", "anthropic"
_APIS: dict[str, ModuleType] = {
    RESPONSES: openai_responses,
    GEMINI: gemini_content,
    ANTHROPIC: anthropic_messages,
}
FORMS = (CHAT, *_APIS)
_KEYS = {"messages": CHAT, "contents": GEMINI, "input": RESPONSES}


def find_form(request: JsonObject) -> str | None:
    """Return the form of a request by its keys; None if it is none."""
    form = next((form for key, form in _KEYS.items() if isinstance(request.get(key), list | str)), None)
    return ANTHROPIC if form == CHAT and anthropic_messages.is_request(request) else form


def read_request(form: str, request: JsonObject) -> Parts:
    """Return the system text of a request, and what its history says, asks for and answers."""
    key = next(key for key, name in _KEYS.items() if name in (form, CHAT if form == ANTHROPIC else form))
    if key not in request:
        raise UnreadableLogError(f"a record of format '{form}' has no '{key}'; got {', '.join(map(repr, request))}")
    beside = join_system(request)
    if form == CHAT:
        system, events = read_messages(_list_messages(request[key]))
        return "\n\n".join(filter(None, (beside, system))), events
    if not isinstance(request[key], str):
        list_objects(request, key)  # what is no object would be passed over
    items = _APIS[form].read_request(request).items
    if form == ANTHROPIC and any(isinstance(item, Unread) for item in items):  # a dialect: calls beside the content
        system, events = read_messages(_list_messages(request[key]))
    else:
        system, events = _to_system(items), to_events(items)
    return "\n\n".join(filter(None, (beside, system))), events


def join_system(request: JsonObject) -> str:
    """Return the instructions that stand beside the messages of a request."""
    config = request.get("config")
    holders = [request, config] if isinstance(config, Mapping) else [request]
    names = ("instructions", "system", "systemInstruction", "system_instruction")
    found = next((holder[name] for holder in holders for name in names if holder.get(name)), None)
    return join_texts(found.get("parts") if isinstance(found, Mapping) else found)


def _list_messages(value: object) -> list[object]:
    if isinstance(value, list):
        return value[0] if value and isinstance(value[0], list) else value  # LangChain asks in batches
    return [{"role": "user", "content": value}] if isinstance(value, str) else []


def read_response(form: str, response: JsonObject) -> list[Event]:
    """Return what a reply says and asks for; nothing if there is none."""
    if form == CHAT:
        return read_messages(list_choice(response))[1]
    reply = _read_reply(form, response)
    if reply is None:
        return []
    if form == ANTHROPIC and any(isinstance(item, Unread) for item in reply.items):
        message = {**response, "role": "assistant", "finish_reason": response.get("stop_reason")}
        return read_messages([message])[1]
    if reply.end == "malformed_call" and not reply.calls:
        raise UnreadableLogError(f"the model's last reply ended with {reply.end_message}: its call is not on record")
    return to_events(reply.items) or ([] if reply.failure is not None else [ModelReply()])


def _read_reply(form: str, response: JsonObject) -> Reply | None:
    if form == GEMINI:
        response = to_wire_keys(response)
        if "candidates" not in response and isinstance(response.get("content"), Mapping):
            response = {**response, "candidates": [response]}  # ADK records the first one without the list
    key = {RESPONSES: "output", GEMINI: "candidates", ANTHROPIC: "content"}[form]
    if not isinstance(response.get(key), list) and not isinstance(response.get("error"), Mapping):
        return None
    reply: Reply = _APIS[form].read_reply(response)
    return reply


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


def _to_system(items: Iterable[Item]) -> str:
    texts = (item.text for item in items if isinstance(item, Text) and item.role in _INSTRUCTING)
    return "\n\n".join(filter(None, texts))


_INSTRUCTING = ("system", "developer")


def to_events(items: Iterable[Item], reply: ModelReply = ModelReply()) -> list[Event]:  # noqa: B008 - it is frozen
    """Return what an API's module has read as events of a conversation, what is the model's as pieces of `reply`.

    Raise UnreadableLogError for what the module does not know.
    """
    events: list[Event] = []
    for item in items:
        if isinstance(item, Unread):
            raise UnreadableLogError(f"it holds {item.what} at {item.place}, in no known form: {item.excerpt}")
        if isinstance(item, Call):
            events.append(replace(reply, calls=(_to_logged(item),)))
        elif isinstance(item, Answer):
            events.append(FunctionAnswer(item.value, item.call_id, item.name, item.is_error))
        elif isinstance(item, Text) and item.role == "assistant":
            events.append(replace(reply, text=item.text))
        elif isinstance(item, Text) and item.role not in _INSTRUCTING:
            events.append(LoggedMessage(item.text))
    return events


def _to_logged(call: Call) -> LoggedCall:
    if call.malformed is not None or not isinstance(call.arguments, Mapping):
        return LoggedCall(call.name, {}, call.call_id, str(call.raw or call.arguments))
    return LoggedCall(call.name, call.arguments, call.call_id, request_id=call.request_id)


def read_exchange(form: str, request: JsonObject, response: JsonObject, source: str) -> Conversation:
    """Return the conversation of a request and the reply to it. Raise UnreadableLogError where there is none."""
    system, events = read_request(form, request)
    conversation = build_exchange(system, [*events, *read_response(form, response)], request, source)
    usage, model = read_usage(response.get("usage") or response.get("usageMetadata")), response.get("model")
    *before, last = conversation.events
    if isinstance(last, ModelReply) and (usage or isinstance(model, str)):
        last = replace(last, usage=usage or last.usage, model=model if isinstance(model, str) else last.model)
    return replace(conversation, events=(*before, last), is_request=True)


def build_exchange(system: str, events: Iterable[Event], request: JsonObject, source: str) -> Conversation:
    """Return a conversation of events. Raise UnreadableLogError where no model has replied."""
    kept = [event for event in drop_requests(events) if not isinstance(event, LoggedMessage) or event.text]
    if not any(isinstance(event, ModelReply) for event in kept):
        raise UnreadableLogError("there is no reply of a model in it")
    return Conversation(events=merge_events(kept), system=system, functions=tuple(list_tools(request)), source=source)


def list_tools(request: JsonObject) -> list[JsonObject]:
    """List the declarations of a request, each as its service takes it."""
    tools = [*filter_mappings(request.get("tools")), *filter_mappings(request.get("functions"))]
    config = request.get("config")
    return [*tools, *filter_mappings(config.get("tools"))] if isinstance(config, Mapping) else tools
