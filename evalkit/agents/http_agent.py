"""An agent behind a URL: asked with a POST, heard in the response.

The rules are those of a process: what it did wrong shows in its calls and its answer; where nobody answers, or answers
with an HTTP error, nothing was measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from evalkit.agents.http_channel import RefusedError
from evalkit.agents.http_client import Answer, UnreachableError, peer_of, post
from evalkit.agents.offline import OWN_PEERS
from evalkit.agents.process_agent import blamed
from evalkit.agents.process_protocol import MAX_OUTPUT, read_reply, request_for
from evalkit.agents.reply import Reply
from evalkit.agents.resolution import AgentUnderTest
from evalkit.errors import ForeignAgentError

if TYPE_CHECKING:
    from evalkit.agents.task import Task

_SHOWN = 500  # characters of a body in a message


def url_agent(spec: Mapping[str, Any]) -> AgentUnderTest:
    """The agent that ``{url, headers?, timeout?}`` describes."""
    headers = {key.lower(): value for key, value in (spec.get("headers") or {}).items() if value is not None}
    run = UrlAgent(spec["url"], headers)
    OWN_PEERS.add(":".join(map(str, peer_of(run.url))))
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
                answer = await post(self.url, headers, request_for(task, served), limit=MAX_OUTPUT)
            except UnreachableError as error:
                raise self._error("agent_unreachable", f"can't be asked: {error}") from None
            except RefusedError:
                raise self._error("output_limit", f"answered with more than {MAX_OUTPUT:,} bytes") from None
        try:
            return self._reply(answer, task)
        except ForeignAgentError as error:
            raise blamed(error, task) from None

    def _reply(self, answer: Answer, task: Task) -> Reply:
        if not 200 <= answer.status < 300:
            where = answer.headers.get("location")
            what = f"redirects to {where}; write that as its 'url'" if where else f"said:{_body(answer)}"
            raise self._error("agent_unreachable", f"answered with HTTP status {answer.status} and {what}")
        return read_reply(answer.body, self.who, task)

    def _error(self, code: str, what: str) -> ForeignAgentError:
        return ForeignAgentError(f"{self.who} {what}", code=code)


def _body(answer: Answer) -> str:
    text = answer.body.decode("utf-8", "backslashreplace").strip()
    shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
    return f"\n  {shown}" if shown else " nothing"
