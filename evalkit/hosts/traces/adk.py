"""Eval sets of Google ADK, of both generations, and its sessions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from evalkit.hosts.traces.exchanges import (
    build_exchange,
    join_system,
)
from evalkit.hosts.traces.log_formats import (
    MENTIONS_CALLS,
    Event,
    LogFormat,
    ModelReply,
    Outcome,
    Record,
    UnreadableLogError,
    find_case_id,
    get_key,
    list_objects,
    read_usage,
    to_events,
)
from evalkit.hosts.traces.open_items import OpenItems
from evalkit.jsonvalue import JsonDict, JsonObject, filter_mappings
from evalkit.wire import gemini_content


def _is_of_adk(record: JsonObject) -> bool:
    turns, events = [*filter_mappings(record.get("data"))], [*filter_mappings(record.get("events"))]
    is_old = bool(turns) and all("query" in turn for turn in turns)
    is_session = bool(events) and all("author" in event for event in events)
    return is_old or is_session or any(get_key(record, key) is not None for key in ("eval_cases", "eval_id"))


def _read_adk(records: Sequence[Record]) -> Iterator[Outcome]:
    cases = (
        (source, record, case)
        for source, record in records
        for case in [*filter_mappings(get_key(record, "eval_cases"))] or [record]
    )
    for source, record, case in cases:
        name = get_key(case, "eval_id") or case.get("name")
        contents: list[JsonObject] = []
        request: JsonDict = {"contents": contents}
        events = [event for event in list_objects(case, "events") if event.get("partial") is not True]
        contents += [_to_content(event) for event in events if isinstance(event.get("content"), Mapping)]
        for turn in filter_mappings(case.get("data")):
            contents += _read_old_turn(turn)
        for invocation in filter_mappings(case.get("conversation")):
            contents += _read_invocation(invocation)
            details = get_key(invocation, "app_details")
            agents = get_key(details, "agent_details") if isinstance(details, Mapping) else None
            agent = next(iter(agents.values()), None) if isinstance(agents, Mapping) else None
            if isinstance(agent, Mapping):
                request["systemInstruction"] = {"parts": [{"text": str(agent.get("instructions") or "")}]}
                request["tools"] = get_key(agent, "tool_declarations")
        if contents:
            place = f"{source}, {name}" if isinstance(name, str) and name else source
            case_id = find_case_id(case, case.get("state"), record)
            try:
                said = [event for content in contents for event in _read_content(content)]
                yield replace(build_exchange(join_system(request), said, request, place), case_id=case_id)
            except UnreadableLogError as error:
                yield UnreadableLogError(f"{place}: {error}")


def _to_content(event: JsonObject) -> JsonDict:
    """Return the content of an event with what the event says of it: the agent that wrote it, its model, the tokens."""
    author = event.get("author")
    return {
        **event["content"],
        "author": None if author == "user" else author,
        "model": get_key(event, "model_version"),
        "usage": get_key(event, "usage_metadata"),
    }


def _read_content(content: JsonObject) -> list[Event]:
    author, model = content.get("author"), content.get("model")
    reply = ModelReply(
        agent=author if isinstance(author, str) else None,
        model=model if isinstance(model, str) else None,
        usage=read_usage(content.get("usage")),
    )
    return to_events(gemini_content.read_request({"contents": [content]}).items, reply)


_INTERMEDIATE = ("tool_uses", "tool_responses", "intermediate_responses", "invocation_events")
_OF_INVOCATION = ("user_content", "userContent", "final_response", "finalResponse", "app_details", "appDetails")


def _read_invocation(invocation: JsonObject) -> Iterator[JsonObject]:
    """Yield the contents of a turn of the user: the message, calls with their answers, the final response."""
    between = get_key(invocation, "intermediate_data")
    rest = {key: value for key, value in invocation.items() if key not in _OF_INVOCATION and value is not between}
    if not isinstance(between, Mapping) or not any(get_key(between, key) for key in _INTERMEDIATE):
        if isinstance(between, Mapping):  # the keys that are known are empty
            between = {key: value for key, value in between.items() if value}
        if MENTIONS_CALLS.search(json.dumps([rest, between])):
            raise UnreadableLogError(f"an invocation holds calls in no known form; got {', '.join(map(repr, rest))}")
        between = {}
    question, reply = get_key(invocation, "user_content"), get_key(invocation, "final_response")
    if isinstance(question, Mapping):
        yield {**question, "role": "user"}
    for event in filter_mappings(get_key(between, "invocation_events")):
        if isinstance(event.get("content"), Mapping):
            yield _to_content(event)
    answers: OpenItems[JsonObject] = OpenItems()
    for answer in filter_mappings(get_key(between, "tool_responses")):
        answers.add(answer, *_list_keys(answer))
    for call in list_objects({"tool_uses": get_key(between, "tool_uses")}, "tool_uses"):
        yield {"role": "model", "parts": [{"functionCall": call}]}
        found = answers.take(*_list_keys(call))
        if found is not None:
            yield {"role": "user", "parts": [{"functionResponse": found}]}
    yield from ({"role": "user", "parts": [{"functionResponse": answer}]} for answer in answers)
    if isinstance(reply, Mapping):
        yield {**reply, "role": "model"}


def _list_keys(item: JsonObject) -> list[tuple[str, str]]:
    """List what a call and its answer have in common, the best first."""
    return [(key, str(item[key])) for key in ("id", "name") if item.get(key)]


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


ADK = LogFormat(
    fits=_is_of_adk,
    read=_read_adk,
    missing="no conversation in what ADK exported; expected eval_cases, events or turns",
    reads_lists=True,
)
