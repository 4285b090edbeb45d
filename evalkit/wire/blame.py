"""Whose doing it is that a request to a model failed: one rule for the loop, own clients, relay, adapters, frameworks.

A service that refuses credentials, is too busy, is broken, hangs, breaks off or is given more than it can hold was not
measured. Any other refusal is of a request that somebody built wrong: of the agent's, it is the agent's failure; of
evalkit's, the case could not be measured either. A refusal that holds what the model wrote is no failure of a request:
the reader makes a reply of it (`read_refusal`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from evalkit.jsonvalue import JsonObject
from evalkit.wire.records import Failure

SERVICE, SENDER = "service", "sender"  # who is to blame

FULL_CONTEXT = "context_length_exceeded"  # OpenAI's code, which stands for the others' here
_FULL_CONTEXT_CODES = frozenset(
    {FULL_CONTEXT, "exceed_context_size_error", "model_context_window_exceeded", "context_window_exceeded"}
)
# Anthropic, Gemini and vLLM have no code for it, and refuse it as any malformed request: their words alone tell.
_FULL_CONTEXT_WORDS = re.compile(
    r"prompt is too long: \d+ tokens|input token count .* exceeds the maximum|maximum context length (is|of) \d+ tokens"
)
_SERVICE_STATUSES = frozenset({401, 403, 408, 429})


def find_blame(failure: Failure) -> str:
    """Return who is to blame for a failed request: SERVICE, or SENDER, who built the request."""
    if failure.status is None or failure.is_midstream or failure.code == FULL_CONTEXT:
        return SERVICE
    return SERVICE if failure.status in _SERVICE_STATUSES or failure.status >= 500 else SENDER


def read_refused(status: int, body: JsonObject | None) -> Failure:
    """Read the body of a reply with an HTTP error. Services nest what they say in `error`, or say it at the top."""
    data: object = body or {}
    while isinstance(data, Mapping) and isinstance(data.get("error"), Mapping):
        data = data["error"]
    if not isinstance(data, Mapping):
        data = {}
    said = data.get("message") or data.get("error") or data.get("detail") or body
    codes = {str(data.get(key)) for key in ("code", "type", "status", "reason") if data.get(key)}
    is_full = bool(codes & _FULL_CONTEXT_CODES) or _FULL_CONTEXT_WORDS.search(str(said)) is not None
    code = FULL_CONTEXT if is_full else str(data.get("code") or data.get("type") or "") or None
    return Failure(f"HTTP {status}: {said}" if said else f"HTTP {status}", status, code)
