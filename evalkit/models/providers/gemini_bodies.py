"""The bodies of Gemini's answers, as they came.

google-genai's client would parse them, and lose what it has no field for (the text of a malformed call), warn of finish
reasons that it doesn't know, and give up on a JSON array. So a hook in its HTTP library stores the body.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from evalkit.jsonvalue import JsonDict, JsonObject

_body: ContextVar[list[str] | None] = ContextVar("evalkit_gemini_body", default=None)


async def keep_body(response: Any) -> None:
    """Store the whole body for the functions below: a response hook for httpx and httpx2."""
    holder = _body.get()
    if holder is not None and response.status_code == 200:
        await response.aread()
        holder.append(response.text)


async def fetch_stream(models: Any, arguments: JsonDict) -> str:
    """Request a stream of contents and return its whole body."""
    # A value that the client's enums don't know is a warning to it, and would be an error under -W error.
    warnings.filterwarnings("ignore", r".* is not a valid \w+", UserWarning, r"google\.genai\.")
    with _capture_bodies() as bodies:
        stream = await models.generate_content_stream(**arguments)
        await anext(aiter(stream), None)  # the request goes out with the first chunk
    return bodies[-1]


async def fetch_interaction(interactions: Any, arguments: JsonDict, body: JsonObject) -> str:
    """Request an interaction, streamed or not, and return the whole body of the answer.

    `body` goes out as it is, beside what the client wants as `arguments`.
    """
    if "automatic_continuation" in inspect.signature(interactions.create).parameters:
        arguments = {**arguments, "automatic_continuation": False}
    with _capture_bodies() as bodies:
        await interactions.create(input="", extra_body=dict(body), **arguments)
    return bodies[-1]


@contextmanager
def _capture_bodies() -> Iterator[list[str]]:
    """Collect the bodies of answers. An error of the client is raised only if none has come."""
    bodies: list[str] = []
    token = _body.set(bodies)
    try:
        yield bodies
    except Exception:
        if not bodies:
            raise
    finally:
        _body.reset(token)


# -- errors of the interactions


def find_cause(error: BaseException) -> BaseException | None:
    """Return what is behind a failed connection of the interactions' client; None for any other exception."""
    is_connection = type(error).__name__ in ("APIConnectionError", "APITimeoutError")
    return error.__cause__ if is_connection else None


def read_refusal(error: BaseException) -> tuple[int, str | None, str, JsonObject] | None:
    """Return the status, its name, the text and the body of an HTTP error of the interactions' client; None for any
    other exception."""
    status, body = getattr(error, "status_code", None), getattr(error, "body", None)
    if not isinstance(status, int):
        return None
    details: Any = body.get("error", body) if isinstance(body, Mapping) else {"message": str(body or error)}
    details = details if isinstance(details, Mapping) else {"message": str(details)}
    name = details.get("status") or details.get("code")
    return status, name if isinstance(name, str) else None, str(details.get("message") or error).strip(), details
