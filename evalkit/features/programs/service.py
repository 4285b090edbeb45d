"""An agent that is a service behind a URL: it is asked by a POST for each answer."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping

from msgspec import Struct

from evalkit.agents.contract import AgentUnderTest, Reply
from evalkit.agents.remote.channel import RejectedMessageError
from evalkit.agents.remote.http_client import ServiceResponse, UnreachableError, get_peer, send_request
from evalkit.agents.task import Task
from evalkit.bounds import explain_bound, get_bounds
from evalkit.errors import IncompleteTraceError, RemoteAgentError
from evalkit.features.programs.protocol import build_request, mark_own_fault, read_reply
from evalkit.features.programs.spans import PATH, RequestTrace, SpanReceiver
from evalkit.hooks import AgentRequest
from evalkit.hosts.traces.api import record_exported_run
from evalkit.models.cassettes.http.unobserved import OWN_PEERS
from evalkit.records.case import Case
from evalkit.records.unobserved import SERVICE
from evalkit.text.format import cut_between_words

_SHOWN = 500  # characters of a body in a message
SPANS_S = 10.0  # for a service to export its spans once it has answered; exporters do so every 5 s by default


def build_url_agent(request: AgentRequest) -> AgentUnderTest:
    """Build the agent that ``{url, headers?, timeout?, spans?}`` describes."""
    form = request.form
    headers = {key.lower(): value for key, value in (form.get("headers") or {}).items() if value is not None}
    run = UrlAgent(form["url"], headers, request.case if form.get("spans") else None)
    OWN_PEERS.add(":".join(map(str, get_peer(run.url))))
    return AgentUnderTest(run.url, run, is_async=True, timeout_s=form.get("timeout"))


class UrlAgent(Struct, frozen=True, eq=False):
    """``await agent(task)`` asks the service once."""

    url: str
    headers: Mapping[str, str]
    traced_case: Case | None = None  # the case, if it is judged by the spans that the agent exports

    @property
    def label(self) -> str:
        return f"agent '{self.url}'"

    async def __call__(self, task: Task) -> Reply:
        trace = RequestTrace()
        spans = None if self.traced_case is None else SpanReceiver()
        endpoints = {} if spans is None else {PATH: spans}
        async with task.serve(model_urls=os.environ, endpoints=endpoints) as served:
            headers = {"content-type": "application/json", "accept": "application/json, text/plain", **self.headers}
            headers |= {} if spans is None else {"traceparent": trace.header}
            request = build_request(task, served, is_traced=spans is not None)
            limit, more = get_bounds().agent_reply_bytes, explain_bound("agent_reply_bytes")
            try:
                answer = await send_request("POST", self.url, headers, request, limit=limit)
            except UnreachableError as error:
                hint = "; a service is started before pytest, by you" if error.is_refused else ""
                raise self._make_error("agent_unreachable", f"can't be asked: {error}{hint}") from None
            except RejectedMessageError:
                raise self._make_error("output_limit", f"answered with more than {limit:,} bytes{more}") from None
            if spans is not None and 200 <= answer.status < 300:
                await self._wait_for_spans(task, spans, trace)
        if spans is None:
            task.note_unobserved(SERVICE, self.url)
        try:
            reply = self._read_reply(answer, task)
        except RemoteAgentError as error:
            raise mark_own_fault(error, task) from None
        if spans is not None and self.traced_case is not None:
            reply = record_exported_run(task, self.traced_case, trace.select(spans.exports), reply)
        return reply

    async def _wait_for_spans(self, task: Task, spans: SpanReceiver, trace: RequestTrace) -> None:
        """Wait until all spans of the request are there. Raise IncompleteTraceError if they don't come."""
        until = time.monotonic() + SPANS_S
        with task.waiting_time.measure():
            while not spans.problems and not trace.is_complete(spans.exports):
                if time.monotonic() > until:
                    count = len(spans.exports)
                    came = f"{count} export{'s' * (count != 1)} came, but " if count else ""
                    raise IncompleteTraceError(
                        f"{self.label}: {came}no span that continues its request (header traceparent) was exported to "
                        f"its otlp_endpoint within {SPANS_S:g} s; see docs/judge-traces.md"
                    )
                await asyncio.sleep(0.05)
        if spans.problems:
            raise IncompleteTraceError(f"{self.label} exported spans that can't be read: {spans.problems[0]}")

    def _read_reply(self, answer: ServiceResponse, task: Task) -> Reply:
        if not 200 <= answer.status < 300:
            location = answer.headers.get("location")
            text = answer.body.decode("utf-8", "backslashreplace").strip()
            excerpt = cut_between_words(text, _SHOWN)
            said = f"said:\n  {excerpt}" if excerpt else "said: nothing"
            problem = f"redirects to {location}; write that as its 'url'" if location else said
            raise self._make_error("agent_unreachable", f"answered with HTTP status {answer.status} and {problem}")
        return read_reply(answer.body, self.label, task)

    def _make_error(self, code: str, problem: str) -> RemoteAgentError:
        return RemoteAgentError(f"{self.label} {problem}", code=code)
