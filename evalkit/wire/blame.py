"""Whose doing it is that a request to a model failed: one rule for the loop, own clients, relay, adapters, frameworks.

A service that refuses credentials, is too busy, is broken, hangs, breaks off or is given more than it can hold was not
measured. Any other refusal is of a request that somebody built wrong: of the agent's, it is the agent's failure; of
evalkit's, the case could not be measured either. A refusal that holds what the model wrote is no failure of a request:
the reader makes a reply of it (`read_refusal`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from evalkit.jsonvalue import JsonObject
from evalkit.wire.records import FULL_CONTEXT, Failure, FullContext

SERVICE, SENDER = "service", "sender"  # who is to blame

_SERVICE_STATUSES = frozenset({401, 403, 408, 429})


# Classes of HTTP clients for requests that none can send: no service has seen them.
_UNSENDABLE = frozenset({"InvalidHeader", "InvalidProxyURL", "InvalidSchema", "InvalidURL", "LocalProtocolError",
    "LocationParseError", "MissingSchema", "UnsupportedProtocol"})  # fmt: skip
NOT_SENT = "not_sent"


def is_unsendable(error: BaseException) -> bool:
    """Return whether a client has raised `error` because of the request itself: its URL, its headers, its body."""
    names = {cls.__name__ for cls in type(error).__mro__}
    is_mistake = isinstance(error, (AttributeError, TypeError, ValueError)) and not isinstance(error, OSError)  # of TLS
    return is_mistake or not _UNSENDABLE.isdisjoint(names)


def find_blame(failure: Failure) -> str:
    """Return who is to blame for a failed request: SERVICE, or SENDER, who built the request."""
    if failure.code == NOT_SENT:
        return SENDER
    if failure.status is None or failure.is_midstream or failure.code == FULL_CONTEXT:
        return SERVICE
    return SERVICE if failure.status in _SERVICE_STATUSES or failure.status >= 500 else SENDER


def read_refused(status: int, body: JsonObject | None, full_contexts: Iterable[FullContext] = ()) -> Failure:
    """Read the body of a reply with an HTTP error. Services nest what they say in `error`, or say it at the top;
    gateways hand on what another one says, so the `full_contexts` of all APIs count."""
    data: object = body or {}
    while isinstance(data, Mapping) and isinstance(data.get("error"), Mapping):
        data = data["error"]
    if not isinstance(data, Mapping):
        data = {}
    said = data.get("message") or data.get("error") or data.get("detail") or body
    codes = {str(data.get(key)) for key in ("code", "type", "status", "reason", "param") if data.get(key)}
    is_full = any(full_context.fits(codes, str(said)) for full_context in full_contexts)
    code = FULL_CONTEXT if is_full else str(data.get("code") or data.get("type") or "") or None
    return Failure(f"HTTP {status}: {said}" if said else f"HTTP {status}", status, code)
