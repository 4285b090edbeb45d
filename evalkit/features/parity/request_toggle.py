"""Requests of an agent's own client to a model's service, asked in the other way: streamed where the client wants a
whole reply, and whole where it wants a stream. The client gets the reply in the form that it wants.

OpenAI's chat completions and responses, Anthropic's messages and Gemini's contents are known. A request that can't be
asked in the other way goes out as it is, and is an obstacle: what was asked in part proves nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from msgspec import Struct
from msgspec.structs import replace

from evalkit.errors import ProviderError
from evalkit.jsonvalue import JsonDict, JsonObject
from evalkit.locks import create_lock
from evalkit.models.cassettes.http.messages import HttpRequest, HttpResponse, unpack_content
from evalkit.models.cassettes.http.player import is_ignored_host
from evalkit.models.cassettes.http.traffic import ToggledRequest
from evalkit.wire import anthropic_messages, gemini_content, openai_chat, openai_responses
from evalkit.wire.bodies import read_values
from evalkit.wire.table import Api, list_apis, read_reply_values

STREAMED, WHOLE = "streamed", "whole"
_REFUSALS = (400, 404, 405, 422, 501)  # of a service that has only one way
_OWN_HEADERS = ("content-type", "content-length", "content-encoding", "transfer-encoding")


class _ChangedRequest(Struct, frozen=True):
    """A request in the other way, and what makes its response the one that the client waits for."""

    request: HttpRequest
    api: Api
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
        values = [value for value in read_values(content or b"") if isinstance(value, Mapping)]
        reply = read_reply_values(self.api, response.status, values, ())
        failure = reply.failure.message if reply.failure is not None else None
        if reply.raw is None or failure is not None or not reply.has_ended:
            problem = f"it says {failure}" if failure else "it is no JSON"
            if values and not failure:
                problem = f"the stream broke off: {reply.end_message or 'it has no end'}"
            raise ProviderError(f"{self.request.host}, asked for a {self.mode} reply, gave none: {problem}")
        if self.mode == STREAMED:
            whole = _COMPLETIONS.get(self.api.NAME, _keep)(reply.raw, values)
            content_type, text = "application/json", json.dumps(whole)
        else:
            content_type, text = self._format_stream(reply.raw)
        headers = tuple((name, value) for name, value in response.headers if name.lower() not in _OWN_HEADERS)
        return replace(response, headers=(*headers, ("content-type", content_type)), body=text.encode())

    def _format_stream(self, reply: JsonObject) -> tuple[str, str]:
        events = list(_SPLITS[self.api.NAME](reply, json.loads(self.original.body)))
        if self.api.NAME == gemini_content.NAME and ("alt", "sse") not in parse_qsl(urlsplit(self.original.url).query):
            return "application/json", json.dumps(events)
        lines = (f"event: {event['type']}\n" if isinstance(event.get("type"), str) else "" for event in events)
        text = "".join(f"{line}data: {json.dumps(event)}\n\n" for line, event in zip(lines, events, strict=True))
        return "text/event-stream", text + ("data: [DONE]\n\n" if self.api.NAME == openai_chat.NAME else "")


class StreamToggle:
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
        self._lock = create_lock()
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
        api = find_toggled_api(request.url) if request.method.upper() == "POST" else None
        if api is None or not self._is_open:
            return None
        if is_ignored_host(request.host, self._ignore_hosts):
            self.add_obstacle(f"{request.host} is one of ignore_hosts in [tool.evalkit.http]")
            return None
        try:
            toggled = _toggle_request(request, api)
        except ValueError as error:
            self.add_obstacle(f"a request to {request.host} {error}")
            return None
        with self._lock:
            self.modes.add(toggled.mode)
        return ToggledRequest(toggled.request, request, partial(self._restore, toggled))

    def _restore(self, toggled: _ChangedRequest, response: HttpResponse) -> HttpResponse:
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
        if self._is_open and find_toggled_api(url) is not None:
            self.add_obstacle(f"the agent's client asks by {client}, and only requests over httpx can be changed")

    def add_obstacle(self, obstacle: str) -> None:
        """Add why a request could not be asked in the other way."""
        with self._lock:
            self.obstacles.append(obstacle)


def find_toggled_api(url: str) -> Api | None:
    """Find the API to which a request goes, if it can be asked in the other way; None for any other."""
    path = urlsplit(url).path.rstrip("/")
    return next((api for api in list_apis() if api.NAME in _SPLITS and path.endswith(tuple(api.PATHS))), None)


def _toggle_request(request: HttpRequest, api: Api) -> _ChangedRequest:
    """Raises ValueError for a request that has no other way."""
    body = json.loads(request.body)
    if not isinstance(body, dict):
        raise ValueError("is no JSON object")
    if api.NAME == gemini_content.NAME:
        if _count_candidates(body) > 1:
            raise ValueError("asks for several replies at once (candidateCount)")
        toggled, mode = _toggle_gemini(request)
        return _ChangedRequest(toggled, api, mode, request)
    if body.get("n") not in (None, 1):
        raise ValueError("asks for several replies at once (n)")
    mode = WHOLE if body.get("stream") is True else STREAMED
    body = {key: value for key, value in body.items() if key not in ("stream", "stream_options")}
    if mode == STREAMED:
        body |= {
            "stream": True,
            **({"stream_options": {"include_usage": True}} if api.NAME == openai_chat.NAME else {}),
        }
    return _ChangedRequest(replace(request, body=json.dumps(body).encode()), api, mode, request)


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


def _keep(reply: JsonObject, values: Sequence[JsonObject]) -> JsonObject:
    return reply


def _complete_response(reply: JsonObject, values: Sequence[JsonObject]) -> JsonObject:
    """Take the items as they were streamed: a service may list others at the end."""
    done = [value for value in values if value.get("type") == "response.output_item.done"]
    items = [value["item"] for value in sorted(done, key=lambda value: value.get("output_index") or 0)]
    return {**reply, "output": items or reply.get("output") or []}


def _complete_chat(reply: JsonObject, values: Sequence[JsonObject]) -> JsonObject:
    """Complete what was joined from chunks by what clients look for in a whole reply."""
    choice = reply["choices"][0]
    message = {**choice["message"]}
    calls = [
        {**call, "type": call.get("type") or "function", "id": call.get("id") or f"call_{index}"}
        for index, call in enumerate(message.pop("tool_calls", ()))
    ]
    message["content"] = message.get("content") or (None if calls or message.get("refusal") else "")
    if choice.get("finish_reason") == "function_call":  # as clients of the older API read it
        message["function_call"] = calls.pop()["function"]
    if calls:
        message["tool_calls"] = calls
    first = {key: values[0][key] for key in ("id", "created", "model") if key in values[0]}
    choices = [{"index": 0, **choice, "message": message}]
    return {"id": "chatcmpl", "created": 0, **first, **reply, "object": "chat.completion", "choices": choices}


_COMPLETIONS = {openai_chat.NAME: _complete_chat, openai_responses.NAME: _complete_response}


# -- whole replies, cut to streams


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


def _split_contents(reply: JsonObject, body: JsonObject) -> Iterator[JsonDict]:
    yield dict(reply)


_SPLITS: Mapping[str, Callable[[JsonObject, JsonObject], Iterator[JsonDict]]] = {
    openai_chat.NAME: _split_completion,
    openai_responses.NAME: _split_response,
    anthropic_messages.NAME: _split_message,
    gemini_content.NAME: _split_contents,
}
