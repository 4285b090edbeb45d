"""Who is to blame for a failed request to a model."""

import json
import ssl
from typing import Any

import pytest

from evalkit.wire import anthropic_messages, bedrock_converse, openai_chat
from evalkit.wire.blame import NOT_SENT, SENDER, SERVICE, find_blame, is_unsendable, read_refused
from evalkit.wire.records import FULL_CONTEXT, Failure
from evalkit.wire.table import Api, read_exchange, read_reply_values

REFUSED: list[tuple[int, Any, str]] = [
    (401, {"error": {"message": "no key", "code": "invalid_api_key"}}, SERVICE),
    (403, None, SERVICE),
    (408, None, SERVICE),
    (429, {"type": "error", "error": {"type": "rate_limit_error", "message": "too many"}}, SERVICE),
    (500, {"detail": "oops"}, SERVICE),
    (529, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, SERVICE),
    (400, {"error": {"message": "Unsupported parameter", "code": "unsupported_parameter"}}, SENDER),
    (404, {"error": {"message": "no such model", "code": "model_not_found"}}, SENDER),
    (422, {"detail": [{"loc": ["body"], "msg": "field required"}]}, SENDER),
    (400, {"error": {"message": "too long", "code": "context_length_exceeded"}}, SERVICE),
    (400, {"error": {"message": "too long", "type": "exceed_context_size_error"}}, SERVICE),
    (400, {"error": {"message": "too long", "type": "BadRequestError", "param": "input_tokens", "code": 400}}, SERVICE),
    (400, {"error": {"message": "too long", "type": "BadRequestError", "param": "temperature", "code": 400}}, SENDER),
    (413, {"type": "error", "error": {"type": "request_too_large", "message": "Request exceeds 32 MB"}}, SERVICE),
    (400, {"object": "error", "code": 400, "message": "This model's maximum context length is 4096 tokens."}, SERVICE),
    (400, {"error": {"message": "This endpoint's maximum context length is 4096 tokens. However, ..."}}, SERVICE),
    (400, {"message": "Prompt contains 40000 tokens, too large for model with 32768 maximum context length"}, SERVICE),
    (400, {"error": "This model's maximum prompt length is 131072 but the request contains 131100 tokens."}, SERVICE),
    (
        400,
        {"error": {"message": "input length and `max_tokens` exceed context limit: 198214 + 8192"}},
        SERVICE,
    ),
    (400, {"message": "Input is too long for requested model."}, SERVICE),
    (400, {"error": "prompt too long; exceeded max context length by 4096 tokens"}, SERVICE),
    (400, {"error": {"message": "Unsupported value: 'max_tokens' exceeds the maximum"}}, SENDER),
    (
        400,
        {"error": {"type": "invalid_request_error", "message": "prompt is too long: 205094 tokens > 200000 maximum"}},
        SERVICE,
    ),
    (
        400,
        {
            "error": {
                "code": 400,
                "message": "The input token count (1) exceeds the maximum number of tokens allowed (0)",
            }
        },
        SERVICE,
    ),
]


@pytest.mark.parametrize(("status", "body", "blame"), REFUSED)
def test_an_http_error_is_blamed_on_the_service_or_on_who_built_the_request(status: int, body: Any, blame: str) -> None:
    chat: Any = openai_chat
    reply = read_reply_values(chat, status, [] if body is None else [body], [])

    assert find_blame(reply.failure) == blame  # type: ignore[arg-type]


FULL: list[tuple[Any, dict[str, Any]]] = [
    (openai_chat, {"choices": [{"message": {"content": "Half"}, "finish_reason": "model_length"}]}),
    (
        anthropic_messages,
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "text", "text": "Half"}],
            "stop_reason": "model_context_window_exceeded",
        },
    ),
    (
        bedrock_converse,
        {"output": {"message": {"content": [{"text": "Half"}]}}, "stopReason": "model_context_window_exceeded"},
    ),
]


@pytest.mark.parametrize(("api", "data"), FULL)
def test_a_reply_that_ends_because_the_context_is_full_was_not_measured(api: Api, data: Any) -> None:
    reply = read_reply_values(api, 200, [data], [])

    assert (reply.text, reply.end, reply.has_ended) == ("Half", "length", True)
    assert reply.failure is not None
    assert (reply.failure.code, find_blame(reply.failure)) == (FULL_CONTEXT, SERVICE)


@pytest.mark.parametrize(
    ("error", "is_the_requests"),
    [
        (ValueError("Invalid header value"), True),
        (type("InvalidURL", (Exception,), {})("no host"), True),
        (ssl.SSLCertVerificationError("self-signed"), False),  # a ValueError, too
        (ConnectionResetError("by peer"), False),
        (RuntimeError("the transport is closed"), False),
    ],
)
def test_a_request_that_can_not_be_sent_is_told_by_what_the_client_raises(
    error: Exception, is_the_requests: bool
) -> None:
    assert is_unsendable(error) == is_the_requests


@pytest.mark.parametrize(
    ("failure", "blame"),
    [
        (Failure("ConnectError"), SERVICE),
        (Failure("broke off", is_midstream=True), SERVICE),
        (Failure("refused in mid-stream", 400, is_midstream=True), SERVICE),
        (Failure("full", 400, FULL_CONTEXT), SERVICE),
        (Failure("refused", 400), SENDER),
        (Failure("UnsupportedProtocol", code=NOT_SENT), SENDER),
    ],
)
def test_any_failure_has_one_to_blame(failure: Failure, blame: str) -> None:
    assert find_blame(failure) == blame


def test_a_refusal_says_what_the_service_said() -> None:
    body = {"error": {"message": "no such model", "code": "model_not_found"}}
    assert read_refused(404, body) == Failure("HTTP 404: no such model", 404, "model_not_found")
    assert read_refused(503, None) == Failure("HTTP 503", 503)


PEG = "The model produced output that does not match the expected peg-native format"
PARSER = "Failed to parse input at pos 12: <tool_call>{"


@pytest.mark.parametrize(
    ("message", "kind", "text"),
    [
        (PEG, "server_error", ""),
        (PARSER, "server_error", "<tool_call>{"),
        (PEG, "invalid_request_error", None),
        ("image input is not supported", "server_error", None),
    ],
)
def test_what_llama_cpp_could_not_read_is_a_reply_of_the_model(message: str, kind: str, text: str | None) -> None:
    """Whole and streamed, and no failure of the service, which any other error of HTTP 500 is."""
    error = {"error": {"code": 500, "message": message, "type": kind}}
    request = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}]}).encode()
    begun = {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": "Well. "}}]}
    stream = "".join(f"data: {json.dumps(event)}\n\n" for event in (begun, error)).encode()
    for status, content, before in ((500, json.dumps(error).encode(), ""), (200, stream, "Well. ")):
        exchange = read_exchange("POST", "http://h/v1/chat/completions", request, status, content)
        assert exchange is not None
        assert exchange.reply is not None
        if text is None:
            assert exchange.reply.failure is not None
        else:
            assert (exchange.reply.failure, exchange.reply.end) == (None, "malformed_call")
            assert (exchange.reply.text, exchange.reply.end_message) == (before + text, message)
