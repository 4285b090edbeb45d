"""An agent behind a URL: the request is a POST, the reply its response.

The rules are those of a process: its mistakes show in its calls and its answer; without an answer, or after an HTTP
error, nothing was measured. The request is HTTP/1.1 over an asyncio stream, and ends with the task that sends it.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import h11
from msgspec import Struct

from evalkit.agents.contract import AgentUnderTest, Reply
from evalkit.agents.offline import OWN_PEERS
from evalkit.agents.remote.protocol import MAX_OUTPUT, build_request, mark_own_fault, read_reply
from evalkit.agents.remote.server import Channel, DisconnectedError, RejectedMessageError
from evalkit.agents.task import Task
from evalkit.errors import RemoteAgentError

_SHOWN = 500  # characters of a body in a message


def build_url_agent(spec: Mapping[str, Any]) -> AgentUnderTest:
    """Build the agent that ``{url, headers?, timeout?}`` describes."""
    headers = {key.lower(): value for key, value in (spec.get("headers") or {}).items() if value is not None}
    run = UrlAgent(spec["url"], headers)
    OWN_PEERS.add(":".join(map(str, get_peer(run.url))))
    return AgentUnderTest(run.url, run, is_async=True, timeout_s=spec.get("timeout"))


@dataclass(frozen=True, eq=False)
class UrlAgent:
    """``await agent(task)`` asks the service once."""

    url: str
    headers: Mapping[str, str]

    @property
    def who(self) -> str:
        return f"agent '{self.url}'"

    async def __call__(self, task: Task) -> Reply:
        async with task.serve() as served:
            headers = {"content-type": "application/json", "accept": "application/json, text/plain", **self.headers}
            try:
                answer = await post(self.url, headers, build_request(task, served), limit=MAX_OUTPUT)
            except UnreachableError as error:
                raise self._make_error("agent_unreachable", f"can't be asked: {error}") from None
            except RejectedMessageError:
                raise self._make_error("output_limit", f"answered with more than {MAX_OUTPUT:,} bytes") from None
        try:
            return self._read_reply(answer, task)
        except RemoteAgentError as error:
            raise mark_own_fault(error, task) from None

    def _read_reply(self, answer: ServiceResponse, task: Task) -> Reply:
        if not 200 <= answer.status < 300:
            location = answer.headers.get("location")
            text = answer.body.decode("utf-8", "backslashreplace").strip()
            excerpt = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
            said = f"said:\n  {excerpt}" if excerpt else "said: nothing"
            problem = f"redirects to {location}; write that as its 'url'" if location else said
            raise self._make_error("agent_unreachable", f"answered with HTTP status {answer.status} and {problem}")
        return read_reply(answer.body, self.who, task)

    def _make_error(self, code: str, problem: str) -> RemoteAgentError:
        return RemoteAgentError(f"{self.who} {problem}", code=code)


class UnreachableError(Exception):
    """There was no answer, or none that is HTTP."""


class ServiceResponse(Struct, frozen=True):
    """A response. `headers` have lower-case names."""

    status: int
    headers: Mapping[str, str]
    body: bytes


async def post(url: str, headers: Mapping[str, str], body: bytes, *, limit: int) -> ServiceResponse:
    """POST `body` to `url`; UnreachableError without an answer, RejectedMessageError for a body beyond `limit` bytes.

    No redirect is followed and no proxy is used. There is no time limit but the task's.
    """
    parts, (host, port) = urlsplit(url), get_peer(url)
    secure = ssl.create_default_context() if parts.scheme == "https" else None
    try:
        reader, writer = await asyncio.open_connection(host, port, ssl=secure)
    except OSError as error:
        why = f"connecting to {host}:{port} failed: {error.strerror or error}"  # without strerror: several attempts
        raise UnreachableError(f"{why}; a service is started before pytest, by you") from None
    channel = Channel(h11.Connection(h11.CLIENT), reader, writer)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    try:
        return await _send_request(channel, parts.netloc.rpartition("@")[2], target, headers, body, limit)
    except (DisconnectedError, ConnectionError, RejectedMessageError) as error:
        if isinstance(error, RejectedMessageError) and error.status == 413:
            raise
        why = str(error) if isinstance(error, RejectedMessageError) else "the connection was closed"
        raise UnreachableError(f"it did not answer the request: {why}") from None
    finally:
        channel.abort()


def get_peer(url: str) -> tuple[str | None, int]:
    """Return the host and the port of `url`."""
    parts = urlsplit(url)
    return parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)


async def _send_request(
    channel: Channel, host: str, target: str, headers: Mapping[str, str], body: bytes, limit: int
) -> ServiceResponse:
    all_headers = {"host": host, "content-length": str(len(body)), "connection": "close", **headers}
    lines = [(name.encode("latin-1"), value.encode("utf-8")) for name, value in all_headers.items()]
    await channel.write(h11.Request(method=b"POST", target=target.encode("utf-8"), headers=lines))
    await channel.write(h11.Data(data=body))
    await channel.write(h11.EndOfMessage())
    head = await channel.read_head()
    if not isinstance(head, h11.Response):
        raise DisconnectedError
    content = await channel.read_body(limit)
    named = {name.decode("latin-1"): value.decode("utf-8", "replace") for name, value in head.headers}
    return ServiceResponse(head.status_code, named, content)
