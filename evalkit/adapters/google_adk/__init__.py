"""Agents of Google's Agent Development Kit: ``await run_agent(task, agent)``, in the shape that `evalkit.adapters`
describes.

The agent, app or runner goes in as it is. What it asks its model and its tools for is seen where ADK asks plugins, for
every agent that runs in the context: sub-agents, agents used as tools, and those that the agent's own code runs.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from msgspec.structs import replace

from evalkit.adapters.common import (
    TaskRecorder,
    build_interrupted_reply,
    require_extra,
    to_reply,
)
from evalkit.adapters.models import choose_model, close_client, open_openai_client, refuse_model, uses_responses_api
from evalkit.agents.contract import Reply
from evalkit.agents.task import Task
from evalkit.features.approvals.desk import ApprovalDesk, ApprovalRequest
from evalkit.jsonvalue import JsonDict
from evalkit.models.providers.table import ModelSpec
from evalkit.records.transcript import ModelTurn
from evalkit.wire.gemini_content import FINISH_REASONS

if TYPE_CHECKING:
    from google.adk.agents.base_agent import BaseAgent
    from google.adk.apps.app import App
    from google.adk.events.event import Event
    from google.adk.models.base_llm import BaseLlm
    from google.adk.runners import Runner
    from google.adk.sessions.session import Session
    from google.genai.types import Content

EXTRA = "google-adk"

_APP = "evalkit"
_ENDINGS = {"content_filter": "blocked", "stop": "completed"}


async def run_agent(
    task: Task,
    agent: BaseAgent | App | Runner,
    *,
    message: str | Content | None = None,
    as_is: Collection[str] = (),
    model: BaseLlm | None = None,
    **options: object,
) -> Reply:
    """Run an agent of Google ADK on what the user says, with the case's functions for its tools.

    `agent` is an agent or workflow, an `App` (its plugins run, too), or a `Runner` with services of its own; without
    one, sessions, memory and artifacts are kept in memory for this case alone. `message` is a text or a ``Content``.
    `model`, a ``BaseLlm``, is asked instead of the agents' own. `options` go to ``runner.run_async``: ``run_config``,
    ``state_delta``, ... Without ``run_config`` an agent has ``settings.max_iterations`` requests to its model. Tools
    named in `as_is` run themselves unless the case mocks them; agents used as tools, and hand-overs, do so anyway.

    Stop reasons: ``max_iterations``; ``interrupted`` where a tool waits for a person, with the open calls under
    ``data["interrupts"]``; ``blocked``, ``length``, ... as the last reply ended. Raises what ``runner.run_async`` does.
    """
    with require_extra(EXTRA):
        from google.adk.agents.invocation_context import LlmCallsLimitExceededError

        from evalkit.adapters.google_adk.hooks import RUNS, AdkAgentRun, build_run_options

    recorder = TaskRecorder.get(task)
    opened = choose_model(task, open_model, task_model) if model is None else None
    run = AdkAgentRun(recorder, as_is, model or opened)
    runner, session = await _open_session(recorder, agent)
    run_options = build_run_options(task, session, message, options)
    ending = _EventSummary()
    try:
        with RUNS.enter(run):
            await ending.collect(runner, run_options, task.take_part(ApprovalDesk))
    except LlmCallsLimitExceededError:
        return Reply(ending.text, stop_reason="max_iterations")
    finally:
        await close_client(opened, "client")
    return ending.build_reply(task, run.last_turn, structured=getattr(runner.agent, "output_schema", None) is not None)


@contextmanager
def answered_by(task: Task, *, as_is: Collection[str] = ()) -> Iterator[None]:
    """Answer the tools of every agent of ADK that this context runs with the case's functions while inside."""
    with require_extra(EXTRA):
        from evalkit.adapters.google_adk.hooks import RUNS, AdkAgentRun

    with RUNS.enter(AdkAgentRun(TaskRecorder.get(task), as_is, choose_model(task, open_model, task_model))):
        yield


def task_model(task: Task) -> BaseLlm:
    """Return the task's own model for an agent of ADK: ``run_agent(task, agent, model=task_model(task))``."""
    with require_extra(EXTRA):
        from evalkit.adapters.google_adk.hooks import build_task_model

    return build_task_model(task)


def open_model(spec: ModelSpec) -> BaseLlm:
    """Open the model of an evalkit spec (``gemini:MODEL``, ``openai:MODEL?base_url=...``) as ADK's. Raises
    UnsupportedModelError."""
    base_url = spec.options.get("base_url")
    if spec.kind == "gemini":
        with require_extra(EXTRA):
            from google.adk.models import Gemini

        return Gemini(model=spec.model, base_url=base_url)
    if spec.kind == "anthropic":
        with require_extra(f"{EXTRA},anthropic"):
            from anthropic import AsyncAnthropic
            from google.adk.models.anthropic_llm import AnthropicLlm

        return AnthropicLlm(model=spec.model, client=AsyncAnthropic(base_url=base_url))
    if spec.kind != "openai":
        raise refuse_model("Google ADK", spec, ("gemini", "openai", "anthropic"), "run_agent(task, agent, model=...)")
    with require_extra(f"{EXTRA},openai"):
        from google.adk.integrations import openai as models

        model_class = models.OpenAIResponsesLlm if uses_responses_api(spec) else models.OpenAILlm
    return model_class(model=spec.model, client=open_openai_client(base_url))


async def _open_session(recorder: TaskRecorder, agent: BaseAgent | App | Runner) -> tuple[Runner, Session]:
    """Runner and session of `agent` in this case, the same for each turn of the user."""
    opened: tuple[Runner, Session] | None = recorder.get_history(agent)
    if opened is None:
        from google.adk.apps.app import App
        from google.adk.artifacts.in_memory_artifact_service import InMemoryArtifactService
        from google.adk.memory.in_memory_memory_service import InMemoryMemoryService
        from google.adk.runners import Runner
        from google.adk.sessions.in_memory_session_service import InMemorySessionService

        runner = agent
        if not isinstance(agent, Runner):
            runner = Runner(
                app=agent if isinstance(agent, App) else App(name=_APP, root_agent=agent),
                session_service=InMemorySessionService(),
                artifact_service=InMemoryArtifactService(),
                memory_service=InMemoryMemoryService(),
            )
        session = await runner.session_service.create_session(app_name=runner.app_name, user_id=_APP)
        opened = runner, session
        recorder.keep_history(agent, opened)
    return opened


class _EventSummary:
    """The outcome of the events of a run."""

    def __init__(self) -> None:
        self.text = ""
        self._output: object = None
        self._stop_reason = "completed"
        self._open_calls: dict[str, JsonDict] = {}  # calls that nobody has answered yet, by id

    async def collect(self, runner: Runner, run_options: JsonDict, desk: ApprovalDesk) -> None:
        """Collect the events of a run, and of those that go on with the case's answers to what is asked."""
        from evalkit.adapters.google_adk.hooks import build_confirmations

        while True:
            async for event in runner.run_async(**run_options):
                self.add(event)
            decisions = desk.decide_all(self.list_requests())
            if decisions is None:
                return
            answers = [not decision.is_denied for decision in decisions]
            run_options["new_message"] = build_confirmations(self.take_open_ids(), answers)

    def add(self, event: Event) -> None:
        if event.partial:
            return
        for call in event.get_function_calls():
            if call.id in (event.long_running_tool_ids or ()):
                self._open_calls[call.id] = {"id": call.id, "name": call.name, "args": call.args or {}}
        for response in event.get_function_responses():
            self._open_calls.pop(response.id, None)
        if event.output is not None:
            self._output = event.output
        parts = (event.content and event.content.parts) or []
        text = "".join(part.text for part in parts if part.text and not part.thought)
        if event.is_final_response() and (text or event.error_code):
            self.text = text
            code = event.error_code or (getattr(event.finish_reason, "name", None) or "STOP")
            finish = FINISH_REASONS.get(code.rpartition(".")[2], "other")
            self._stop_reason = _ENDINGS.get(finish, finish)

    def list_requests(self) -> list[ApprovalRequest]:
        """List the calls that wait for the confirmation of a person; none if something else is waited for as well."""
        originals = [call["args"].get("originalFunctionCall") for call in self._open_calls.values()]
        if not all(isinstance(original, dict) for original in originals):
            return []
        return [(call["name"], call.get("args") or {}, call.get("id")) for call in originals]

    def take_open_ids(self) -> list[str]:
        """Return the ids of what waits for a person, in the order of `list_requests`, which is answered now."""
        ids = list(self._open_calls)
        self._open_calls.clear()
        return ids

    def build_reply(self, task: Task, last: ModelTurn, *, structured: bool) -> Reply:
        """Build the reply of the last final response; of a workflow without one, of its output."""
        if self._open_calls:
            return build_interrupted_reply(task, self.text, list(self._open_calls.values()), self.list_requests())
        if not self.text and self._output is not None:
            return to_reply(self._output, stop_reason=self._stop_reason)
        if not self.text and last.finish_reason == "empty":
            return Reply(stop_reason="empty")
        reply = Reply(self.text, stop_reason=self._stop_reason)
        if structured:
            with suppress(ValueError):
                return replace(reply, data={"output": json.loads(self.text)})
        return reply
