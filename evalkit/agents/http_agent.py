"""An agent behind a URL: asked with a POST, heard in the response.

The rules are those of a process: what it did wrong shows in its calls and its answer; where nobody answers, or answers
with an HTTP error, nothing was measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from evalkit.agents.http_channel import RejectedMessageError
from evalkit.agents.http_client import ServiceResponse, UnreachableError, get_peer, post
from evalkit.agents.offline import OWN_PEERS
from evalkit.agents.process_agent import mark_own_fault
from evalkit.agents.process_protocol import MAX_OUTPUT, build_request, read_reply
from evalkit.agents.reply import Reply
from evalkit.agents.resolution import AgentUnderTest
from evalkit.errors import RemoteAgentError

if TYPE_CHECKING:
    from evalkit.agents.task import Task

_SHOWN = 500  # characters of a body in a message


def build_url_agent(spec: Mapping[str, Any]) -> AgentUnderTest:
    """The agent that ``{url, headers?, timeout?}`` describes."""
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
            problem = (
                f"redirects to {location}; write that as its 'url'" if location else f"said:{_format_body(answer)}"
            )
            raise self._make_error("agent_unreachable", f"answered with HTTP status {answer.status} and {problem}")
        return read_reply(answer.body, self.who, task)

    def _make_error(self, code: str, problem: str) -> RemoteAgentError:
        return RemoteAgentError(f"{self.who} {problem}", code=code)


def _format_body(answer: ServiceResponse) -> str:
    text = answer.body.decode("utf-8", "backslashreplace").strip()
    excerpt = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
    return f"\n  {excerpt}" if excerpt else " nothing"
