"""Who is to blame for a failed request to a model."""

from typing import Any

import pytest

from evalkit.wire.blame import FULL_CONTEXT, SENDER, SERVICE, find_blame, read_refused
from evalkit.wire.records import Failure

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
    assert find_blame(read_refused(status, body)) == blame


@pytest.mark.parametrize(
    ("failure", "blame"),
    [
        (Failure("ConnectError"), SERVICE),
        (Failure("broke off", is_midstream=True), SERVICE),
        (Failure("refused in mid-stream", 400, is_midstream=True), SERVICE),
        (Failure("full", 400, FULL_CONTEXT), SERVICE),
        (Failure("refused", 400), SENDER),
    ],
)
def test_any_failure_has_one_to_blame(failure: Failure, blame: str) -> None:
    assert find_blame(failure) == blame


def test_a_refusal_says_what_the_service_said() -> None:
    body = {"error": {"message": "no such model", "code": "model_not_found"}}
    assert read_refused(404, body) == Failure("HTTP 404: no such model", 404, "model_not_found")
    assert read_refused(503, None) == Failure("HTTP 503", 503)
