"""Requests of an agent's own client to a model's service, asked in the other way: streamed where the client wants a
whole reply, and whole where it wants a stream. The client gets the reply in the form that it wants.

OpenAI's chat completions and responses, Anthropic's messages and Gemini's contents are known. A request that can't be
asked in the other way goes out as it is, and is an obstacle: what was asked in part proves nothing.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from msgspec import Struct
from msgspec.structs import replace

from evalkit.cassettes.http.messages import HttpRequest, HttpResponse, unpack_content
from evalkit.cassettes.http.player import is_ignored_host
from evalkit.errors import ProviderError
from evalkit.jsonvalue import JsonDict, JsonObject
from evalkit.providers.table import PROVIDERS
from evalkit.streaming import parse_values

REQUEST_TOGGLE = "request_toggle"  # the key of Settings.extra
STREAMED, WHOLE = "streamed", "whole"
_REFUSALS = (400, 404, 405, 422, 501)  # of a service that has only one way
_OWN_HEADERS = ("content-type", "content-length", "content-encoding", "transfer-encoding")


class Wire(Struct, frozen=True):
    """The API of a model's service: how a stream is joined to a whole reply, and a whole reply cut to a stream."""

    ending: str  # of its URLs' paths
    join: Callable[[Sequence[JsonObject]], JsonDict]
    split: Callable[[JsonObject, JsonObject], Iterator[JsonDict]]  # of the reply, and the body of the request
    last_line: str = ""


class ToggledRequest(Struct, frozen=True):
    """A request in the other way, and what makes its response the one that the client waits for."""

    request: HttpRequest
    wire: Wire
    mode: str  # in which the service is asked
    original: HttpRequest

    def restore_response(self, response: HttpResponse) -> HttpResponse:
        """Return the response in the form that the client wants; failures as they are, which have one form.

        Raises ProviderError for a stream that broke off, and for what is no reply of a model.
        """
        if response.status != 200:
            return response
        encoding = response.get_header("content-encoding")
        content = unpack_content(response.body, encoding) if encoding else response.body
        try:
            values = [value for value in parse_values((content or b"").decode()) if isinstance(value, Mapping)]
            failed = next((value["error"] for value in values if value.get("error")), None)
            if not values or failed is not None:
                raise ValueError(f"it says {json.dumps(failed)[:200]}" if failed else "it is no JSON")
            if self.mode == STREAMED:
                content_type, text = "application/json", json.dumps(self.wire.join(values))
            else:
                content_type, text = self._format_stream(values[0])
        except (AttributeError, IndexError, KeyError, TypeError, ValueError, RecursionError) as error:
            message = f"{self.request.host}, asked for a {self.mode} reply, gave none: {error}"
            raise ProviderError(message) from error
        headers = tuple((name, value) for name, value in response.headers if name.lower() not in _OWN_HEADERS)
        return replace(response, headers=(*headers, ("content-type", content_type)), body=text.encode())

    def _format_stream(self, reply: JsonObject) -> tuple[str, str]:
        events = list(self.wire.split(reply, json.loads(self.original.body)))
        if self.wire is GEMINI and ("alt", "sse") not in parse_qsl(urlsplit(self.original.url).query):
            return "application/json", json.dumps(events)
        lines = (f"event: {event['type']}\n" if isinstance(event.get("type"), str) else "" for event in events)
        text = "".join(f"{line}data: {json.dumps(event)}\n\n" for line, event in zip(lines, events, strict=True))
        return "text/event-stream", text + self.wire.last_line


class RequestToggle:
    """Toggles the requests of one run, from any thread.

    `modes` are those in which services were asked, `obstacles` say why a request was not changed, and `failures` are
    those of services that gave no reply in the other way.
    """

    def __init__(self, ignore_hosts: Sequence[str] = (), *, can_intercept: bool = True) -> None:
        self.can_intercept = can_intercept  # the requests of clients in this process
        self.modes: set[str] = set()
        self.obstacles: list[str] = []
        self._ignore_hosts = ignore_hosts
        self._is_open = True
        self._lock = threading.Lock()
        self._failures: dict[tuple[str, bytes], ProviderError] = {}  # by request

    @property
    def failures(self) -> list[ProviderError]:
        """Those of requests that were not answered well when the client asked again."""
        return list(self._failures.values())

    @property
    def is_open(self) -> bool:
        """True until the run is over."""
        return self._is_open

    def close(self) -> None:
        """End the run: requests of code that still runs go out as they are."""
        self._is_open = False

    def toggle(self, request: HttpRequest) -> ToggledRequest | None:
        """Return the request in the other way; None for one that goes out as it is."""
        wire = find_wire(request.url) if request.method.upper() == "POST" else None
        if wire is None or not self._is_open:
            return None
        if is_ignored_host(request.host, self._ignore_hosts):
            self.add_obstacle(f"{request.host} is one of ignore_hosts in [tool.evalkit.http]")
            return None
        try:
            toggled = _toggle_request(request, wire)
        except ValueError as error:
            self.add_obstacle(f"a request to {request.host} {error}")
            return None
        with self._lock:
            self.modes.add(toggled.mode)
        return toggled

    def restore(self, toggled: ToggledRequest, response: HttpResponse) -> HttpResponse:
        """Return the response in the form that the client wants. Raises ProviderError, which is on record then."""
        if response.status in _REFUSALS:
            self.add_obstacle(f"{toggled.request.host} answers {response.status} to a {toggled.mode} request")
        key = (toggled.request.url, toggled.request.body)
        try:
            restored = toggled.restore_response(response)
        except ProviderError as error:
            with self._lock:
                self._failures[key] = error
            raise
        if response.status == 200:
            with self._lock:
                self._failures.pop(key, None)
        return restored

    def note_client(self, url: str, client: str) -> None:
        """Note a request of a client library whose requests can't be changed."""
        if self._is_open and find_wire(url) is not None:
            self.add_obstacle(f"the agent's client asks by {client}, and only requests over httpx can be changed")

    def add_obstacle(self, obstacle: str) -> None:
        """Add why a request could not be asked in the other way."""
        with self._lock:
            self.obstacles.append(obstacle)


def find_wire(url: str) -> Wire | None:
    """Find the API to which a request goes; None for any other."""
    path = urlsplit(url).path.rstrip("/")
    if path.endswith((_GEMINI_WHOLE, _GEMINI_STREAMED)):
        return GEMINI
    return next((wire for wire in WIRES if path.endswith(wire.ending)), None)


def _toggle_request(request: HttpRequest, wire: Wire) -> ToggledRequest:
    """Raises ValueError for a request that has no other way."""
    body = json.loads(request.body)
    if not isinstance(body, dict):
        raise ValueError("is no JSON object")
    if wire is GEMINI:
        if _count_candidates(body) > 1:
            raise ValueError("asks for several replies at once (candidateCount)")
        toggled, mode = _toggle_gemini(request)
        return ToggledRequest(toggled, wire, mode, request)
    if body.get("n") not in (None, 1):
        raise ValueError("asks for several replies at once (n)")
    mode = WHOLE if body.get("stream") is True else STREAMED
    body = {key: value for key, value in body.items() if key not in ("stream", "stream_options")}
    if mode == STREAMED:
        body |= {"stream": True, **({"stream_options": {"include_usage": True}} if wire is CHAT_COMPLETIONS else {})}
    return ToggledRequest(replace(request, body=json.dumps(body).encode()), wire, mode, request)


_GEMINI_WHOLE, _GEMINI_STREAMED = ":generateContent", ":streamGenerateContent"


def _count_candidates(body: JsonObject) -> int:
    config = body.get("generationConfig", body.get("generation_config"))
    count = config.get("candidateCount", config.get("candidate_count")) if isinstance(config, Mapping) else None
    return count if isinstance(count, int) else 1


def _toggle_gemini(request: HttpRequest) -> tuple[HttpRequest, str]:
    parts = urlsplit(request.url)
    mode = WHOLE if parts.path.endswith(_GEMINI_STREAMED) else STREAMED
    before, after = (_GEMINI_STREAMED, _GEMINI_WHOLE) if mode == WHOLE else (_GEMINI_WHOLE, _GEMINI_STREAMED)
    path = parts.path.removesuffix(before) + after
    pairs = [(name, value) for name, value in parse_qsl(parts.query, keep_blank_values=True) if name != "alt"]
    query = urlencode([*pairs, ("alt", "sse")] if mode == STREAMED else pairs)
    return replace(request, url=urlunsplit((parts.scheme, parts.netloc, path, query, ""))), mode


def _join_stream(service: str, events: Sequence[JsonObject]) -> JsonDict:
    """Join a stream to the reply that would have come whole. Raises ValueError where the stream broke off."""
    turn = PROVIDERS[service]().read_stream(events)
    if turn.finish_reason == "truncated" or not isinstance(turn.raw, Mapping):
        raise ValueError(f"the stream broke off: {turn.finish_message or 'it has no end'}")
    return dict(turn.raw)


# -- OpenAI's chat completions


def _join_completion(chunks: Sequence[JsonObject]) -> JsonDict:
    reply = _join_stream("openai", chunks)
    if not reply["choices"][0].get("finish_reason"):
        raise ValueError("the stream broke off: it has no finish reason")
    message = reply["choices"][0]["message"]
    for index, call in enumerate(message.get("tool_calls", ())):
        call |= {"type": call.get("type") or "function", "id": call.get("id") or f"call_{index}"}
    if not message.get("content") and (message.get("tool_calls") or message.get("refusal")):
        message["content"] = None  # as a whole reply says it
    if reply["choices"][0]["finish_reason"] == "function_call":  # as clients of the older API read it
        (call,) = message.pop("tool_calls")
        message["function_call"] = call["function"]
    reply["choices"][0]["index"] = 0
    first = {key: chunks[0][key] for key in ("id", "created", "model") if key in chunks[0]}
    return {"id": "chatcmpl", "created": 0, **first, **reply, "object": "chat.completion"}


def _split_completion(reply: JsonObject, body: JsonObject) -> Iterator[JsonDict]:
    choice = reply["choices"][0]
    calls = choice["message"].get("tool_calls") or ()
    delta = {key: value for key, value in choice["message"].items() if key != "tool_calls"}
    if calls:
        delta["tool_calls"] = [{"index": index, **call} for index, call in enumerate(calls)]
    about = {key: value for key, value in reply.items() if key not in ("choices", "usage")}
    about["object"] = "chat.completion.chunk"
    yield {**about, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    yield {**about, "choices": [{"index": 0, "delta": {}, "finish_reason": choice.get("finish_reason")}]}
    if (body.get("stream_options") or {}).get("include_usage"):
        yield {**about, "choices": [], "usage": reply.get("usage")}


# -- OpenAI's responses


def _join_response(events: Sequence[JsonObject]) -> JsonDict:
    ends = ("response.completed", "response.incomplete", "response.failed")
    reply = next((event["response"] for event in events if event.get("type") in ends), None)
    if reply is None:
        raise ValueError("the stream broke off: it has no end")
    done = [event for event in events if event.get("type") == "response.output_item.done"]
    items = [event["item"] for event in sorted(done, key=lambda event: event.get("output_index") or 0)]
    return {**reply, "output": items or reply.get("output") or []}


def _split_response(reply: JsonObject, body: JsonObject) -> Iterator[JsonDict]:
    for number, event in enumerate(_list_response_events(reply)):
        yield {**event, "sequence_number": number}


def _list_response_events(reply: JsonObject) -> Iterator[JsonDict]:
    empty_reply = {**reply, "output": [], "status": "in_progress"}
    yield {"type": "response.created", "response": empty_reply}
    yield {"type": "response.in_progress", "response": empty_reply}
    for index, item in enumerate(reply["output"]):
        place = {"output_index": index, "item_id": item.get("id")}
        texts = item.get("content") if item.get("type") == "message" else None
        empty: JsonDict = {"content": []} if texts else {"arguments": ""} if item.get("type") == "function_call" else {}
        yield {"type": "response.output_item.added", "output_index": index, "item": {**item, **empty}}
        for number, part in enumerate(texts or ()):
            at = {**place, "content_index": number}
            key, name = ("refusal", "refusal") if part.get("type") == "refusal" else ("text", "output_text")
            yield {"type": "response.content_part.added", **at, "part": {**part, key: ""}}
            yield {"type": f"response.{name}.delta", **at, "delta": part.get(key, ""), "logprobs": []}
            yield {"type": f"response.{name}.done", **at, key: part.get(key, ""), "logprobs": []}
            yield {"type": "response.content_part.done", **at, "part": part}
        if item.get("type") == "function_call":
            arguments = item.get("arguments", "")
            yield {"type": "response.function_call_arguments.delta", **place, "delta": arguments}
            yield {"type": "response.function_call_arguments.done", **place, "arguments": arguments}
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    status = reply.get("status")
    yield {"type": f"response.{status if status in ('incomplete', 'failed') else 'completed'}", "response": reply}


# -- Anthropic's messages


def _split_message(reply: JsonObject, body: JsonObject) -> Iterator[JsonDict]:
    yield {"type": "message_start", "message": {**reply, "content": [], "stop_reason": None}}
    for index, block in enumerate(reply["content"]):
        start: JsonDict = dict(block)
        deltas: list[JsonDict] = []
        if block["type"] == "tool_use":
            start["input"] = {}
            deltas = [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}]
        else:
            for kind, key in (("text_delta", "text"), ("thinking_delta", "thinking"), ("signature_delta", "signature")):
                if key in block:
                    start[key] = ""
                    deltas.append({"type": kind, key: block[key]})
        yield {"type": "content_block_start", "index": index, "content_block": start}
        yield from ({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas)
        yield {"type": "content_block_stop", "index": index}
    end = {"stop_reason": reply.get("stop_reason"), "stop_sequence": reply.get("stop_sequence")}
    yield {"type": "message_delta", "delta": end, "usage": reply.get("usage") or {}}
    yield {"type": "message_stop"}


# -- Gemini's contents


def _split_contents(reply: JsonObject, body: JsonObject) -> Iterator[JsonDict]:
    yield dict(reply)


CHAT_COMPLETIONS = Wire("/chat/completions", _join_completion, _split_completion, "data: [DONE]\n\n")
RESPONSES = Wire("/responses", _join_response, _split_response)
MESSAGES = Wire("/v1/messages", partial(_join_stream, "anthropic"), _split_message)
GEMINI = Wire(_GEMINI_WHOLE, partial(_join_stream, "gemini"), _split_contents)
WIRES = (CHAT_COMPLETIONS, RESPONSES, MESSAGES)
