"""Streamed replies, from the body of the response: server-sent events, or the JSON array of servers without them.

The client would parse the events itself, and lose what it has no field for (the text of a malformed call), warn of
finish reasons it doesn't know, and give up on an array. So the body is read as it came, by a hook in its HTTP library.
"""

from __future__ import annotations

import warnings
from contextvars import ContextVar
from typing import Any

from evalkit.providers.events import parse_values

_body: ContextVar[list[str] | None] = ContextVar("evalkit_gemini_body", default=None)


async def keep_body(response: Any) -> None:
    """A response hook for httpx and httpx2: reads the whole body, for `streamed` to read."""
    holder = _body.get()
    if holder is not None and response.status_code == 200:
        await response.aread()
        holder.append(response.text)


async def fetch_stream(models: Any, arguments: dict[str, Any]) -> list[Any]:
    """Ask for a stream, and give all its chunks as wire JSON."""
    # A value that the client's enums don't know is a warning to it, and would be an error under -W error.
    warnings.filterwarnings("ignore", r".* is not a valid \w+", UserWarning, r"google\.genai\.")
    holder: list[str] = []
    token = _body.set(holder)
    try:
        stream = await models.generate_content_stream(**arguments)
        await anext(aiter(stream), None)  # the request goes out with the first chunk
    except Exception:
        if not holder:
            raise
    finally:
        _body.reset(token)
    return parse_values(holder[-1])
