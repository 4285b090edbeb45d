"""Requests to models' services and the replies to them.

The modules of the services' own APIs read them first (`evalkit.wire`). What frameworks and tracing services write down
in the form of chat completions, and what those modules leave unread, is a matter for the dialects of messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

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
from evalkit.traces.messages import holds_call, is_by_model, is_message, read_messages, unwrap_message
from evalkit.wire import (
    anthropic_messages,
    bedrock_converse,
    gemini_content,
    gemini_interactions,
    ollama_chat,
    openai_responses,
)
from evalkit.wire.bodies import read_values, split_unread
from evalkit.wire.reading import as_mapping
from evalkit.wire.records import CLIENT, Answer, Call, Item, Reply, Text, Unread
from evalkit.wire.table import APIS, Api, find_api, find_api_by_reply

CHAT = "openai"  # chat completions, in any dialect
_FORMS = {
    "responses": openai_responses.NAME,
    "gemini": gemini_content.NAME,
    "anthropic": anthropic_messages.NAME,
    "bedrock": bedrock_converse.NAME,
    "interactions": gemini_interactions.NAME,
}
FORMS = (CHAT, *_FORMS)
GEMINI = "gemini"
_KEYS = {"messages": CHAT, "contents": GEMINI, "input": "responses"}  # of requests that no API claims


def find_form(request: JsonObject) -> str | None:
    """Return the form of a request: the API that its body is of, else what its keys say; None if it is none."""
    form = next((form for key, form in _KEYS.items() if isinstance(request.get(key), list | str)), None)
    if form is None:
        return None
    api = find_api("", request)
    return next((name for name, of_api in _FORMS.items() if api is not None and of_api == api.NAME), form)


def _get_api(form: str) -> Api:
    return next(api for api in APIS if _FORMS[form] == api.NAME)


def read_request(form: str, request: JsonObject) -> Parts:
    """Return the system text of a request, and what its history says, asks for and answers."""
    key = "messages" if form == CHAT else _get_api(form).KEY
    if key not in request:
        raise UnreadableLogError(f"a record of format '{form}' has no '{key}'; got {', '.join(map(repr, request))}")
    beside = join_system(request)
    if form == CHAT:
        system, events = read_messages(_list_messages(request[key]))
        return "\n\n".join(filter(None, (beside, system))), events
    if not isinstance(request[key], str):
        list_objects(request, key)  # what is no object would be passed over
    items = _get_api(form).read_request(request).items
    if key == "messages" and any(isinstance(item, Unread) for item in items):  # a dialect: calls beside the content
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


def read_response(form: str, response: object) -> list[Event]:
    """Return what a reply says and asks for, whole or in pieces; nothing if there is none. Raise UnreadableLogError."""
    values = _list_values(response)
    if not values:
        return [ModelReply(response)] if isinstance(response, str) and response else []
    api = find_api_by_reply(values) or (None if form == CHAT else _get_api(form))
    is_piece = api is not None and api.NAME not in _SAME_FORM and api.is_streamed(values[0])
    whole = values[0] if len(values) == 1 and not is_piece else None
    if whole is not None and "choices" in whole:
        return read_messages(list_choices(whole))[1]
    if api is None and whole is not None and (message := _find_message(whole)) is not None:
        return read_messages([message])[1]
    if api is None or not (any(map(api.is_value, values)) or isinstance(values[0].get(_ANSWERS.get(form, "")), list)):
        if holds_call(values):
            raise UnreadableLogError(f"its reply could hold a call, in no known form; got {', '.join(values[0])}")
        return []
    reply = api.read_reply(whole) if whole is not None else _read_stream(api, values)
    if whole is not None and form != GEMINI and any(isinstance(item, Unread) for item in reply.items):
        with suppress(UnreadableLogError):  # a dialect
            return read_messages([{**whole, "role": "assistant", "finish_reason": whole.get("stop_reason")}])[1]
    if whole is None and not reply.has_ended and reply.failure is None:
        raise UnreadableLogError("its reply is a piece of a stream, not the whole reply")
    if not reply.calls and reply.end_message is not None and reply.end in ("length", "malformed_call", "truncated"):
        raise UnreadableLogError(f"the last reply ended with {reply.end_message}: its call is not on record")
    piece = ModelReply(model=reply.model, usage=reply.usage)
    return to_events(reply.items, piece) or ([] if reply.failure is not None else [piece])


def _find_message(response: JsonObject) -> JsonObject | None:
    """Return the message of the model that a reply is, or holds, without the frame of an API."""
    inner = response.get("message")
    listed = (item for item in (response, inner) if isinstance(item, Mapping))
    return next((item for item in listed if is_message(item) and is_by_model(unwrap_message(item))), None)


_SAME_FORM = (gemini_content.NAME, ollama_chat.NAME)  # a whole reply looks like a piece of one
_ANSWERS = {"responses": "output", GEMINI: "candidates", "anthropic": "content"}  # the keys of replies, of each form


def _list_values(response: object) -> list[JsonObject]:
    """Return the values of a reply: one, its pieces, or those in a text of events."""
    if isinstance(response, str):
        response = split_unread(read_values(response.encode("utf-8", "replace")))[0]
    values = [*filter_mappings(response if isinstance(response, list) else [response])]
    values = [to_wire_keys(value) if "candidates" in value else value for value in values]
    if len(values) == 1 and "parts" in as_mapping(values[0].get("content")):
        return [{"candidates": [to_wire_keys(values[0])]}]  # ADK records the first one without the list
    return values


def _read_stream(api: Api, values: list[JsonObject]) -> Reply:
    reader = api.StreamReader()
    for value in values:
        reader.feed(value)
    return reader.finish()


def list_choices(response: JsonObject) -> Iterator[JsonDict]:
    """Yield the message of the first choice, with the reason for its end, and of the others what they ask for. Raise
    UnreadableLogError if there is none."""
    for number, choice in enumerate(filter_mappings(response.get("choices"))):
        message = choice.get("message")
        if isinstance(message, Mapping) and (not number or holds_call(message)):
            text = {"content": None} if number else {}
            yield {"finish_reason": choice.get("finish_reason"), **message, "role": "assistant", **text}
        elif isinstance(choice.get("text"), str) and not number:
            yield {"role": "assistant", "content": choice["text"]}
        elif not number:
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
    is_hosted = call.carrier != CLIENT
    return LoggedCall(call.name, call.arguments, call.call_id, request_id=call.request_id, is_hosted=is_hosted)


def read_exchange(form: str, request: JsonObject, response: object, source: str) -> Conversation:
    """Return the conversation of a request and the reply to it. Raise UnreadableLogError where there is none."""
    system, events = read_request(form, request)
    about = as_mapping(response)
    failure = about.get("error") if about.get("error") and not about.get("choices") else None
    replied = read_response(form, response)
    conversation = build_exchange(system, [*events, *replied], request, source, is_failure=failure is not None)
    *before, last = conversation.events or (None,)
    if isinstance(last, ModelReply) and last.usage is None:
        usage, model = read_usage(about.get("usage") or about.get("usageMetadata")), about.get("model")
        last = replace(last, usage=usage, model=model if isinstance(model, str) else last.model)
        conversation = replace(conversation, events=(*before, last))
    error = None if failure is None else str(as_mapping(failure).get("message") or failure)
    return replace(conversation, is_request=True, error=error, is_service_error=error is not None)


def build_exchange(
    system: str, events: Iterable[Event], request: JsonObject, source: str, *, is_failure: bool = False
) -> Conversation:
    """Return a conversation of events. Raise UnreadableLogError where no model has replied."""
    kept = [event for event in drop_requests(events) if not isinstance(event, LoggedMessage) or event.text]
    if not is_failure and not any(isinstance(event, ModelReply) for event in kept):
        raise UnreadableLogError("there is no reply of a model in it")
    return Conversation(events=merge_events(kept), system=system, functions=tuple(list_tools(request)), source=source)


def list_tools(request: JsonObject) -> list[JsonObject]:
    """List the declarations of a request, each as its service takes it."""
    tools = [*filter_mappings(request.get("tools")), *filter_mappings(request.get("functions"))]
    tools += filter_mappings(as_mapping(request.get("config")).get("tools"))
    of_bedrock = filter_mappings(as_mapping(request.get("toolConfig")).get("tools"))
    return [*tools, *(tool["toolSpec"] for tool in of_bedrock if isinstance(tool.get("toolSpec"), Mapping))]
