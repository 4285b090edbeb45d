"""Agents of the OpenAI Agents SDK: ``await run_agent(task, agent)``, in the shape that `evalkit.adapters` describes.

The agents stay the very objects that they are, in hooks and results too: within a case's context an agent lists copies
of its tools whose calls the dispatcher answers, and each run has hooks that hear of every reply and hand-off. So it is
for every agent that is reached: by hand-off, as a tool, or from code.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

from evalkit.adapters.common import (
    CaseScope,
    TaskRecorder,
    UnsupportedModelError,
    open_requested_model,
    require_extra,
    to_reply,
)
from evalkit.agents.contract import Reply
from evalkit.agents.task import Task
from evalkit.providers.table import ModelSpec

EXTRA = "openai-agents"
# Who brings one of these keeps the conversation there.
_SESSION_OPTIONS = ("session", "conversation_id", "previous_response_id", "auto_previous_response_id")


async def run_agent(
    task: Task, agent: Any, *, message: Any = None, as_is: Collection[str] = (), **options: Any
) -> Reply:
    """Run an agent of the OpenAI Agents SDK on what the user says, with the case's functions for its tools.

    `options` go to ``Runner.run``: ``context``, ``run_config``, ``hooks``, ``session``, ... Without ``max_turns`` a run
    has ``settings.max_iterations`` turns; without a session or the like the agent goes on with its conversation of this
    case. `message` is a text or a list of input items. Agents used as tools run as they are unless the case mocks the
    tool, and so do the tools named in `as_is`: those whose code only asks another agent. Nothing is traced. Raises
    what ``Runner.run`` raises, except for turn limits, guardrails and refusals, which are stop reasons.
    """
    with require_extra(EXTRA):
        from agents import (
            InputGuardrailTripwireTriggered,
            MaxTurnsExceeded,
            OutputGuardrailTripwireTriggered,
            Runner,
            ToolInputGuardrailTripwireTriggered,
            ToolOutputGuardrailTripwireTriggered,
        )

    recorder = TaskRecorder.get(task)
    items = recorder.histories.get(id(agent), (agent, []))[1]
    options.setdefault("max_turns", task.settings.max_iterations)
    content = task.message if message is None else message
    message_items = [{"role": "user", "content": content}] if isinstance(content, str) else list(content)
    history = [] if any(options.get(name) for name in _SESSION_OPTIONS) else items
    model = open_requested_model(task, open_model)
    try:
        with _enter_case(task, as_is, model):
            result = await Runner.run(agent, [*history, *message_items], **options)
    except MaxTurnsExceeded:
        return Reply(stop_reason="max_iterations")
    except (
        InputGuardrailTripwireTriggered,
        OutputGuardrailTripwireTriggered,
        ToolInputGuardrailTripwireTriggered,
        ToolOutputGuardrailTripwireTriggered,
    ):
        return Reply(stop_reason="blocked")
    finally:
        if (client := getattr(model, "_client", None)) is not None:
            await client.close()
    recorder.histories[id(agent)] = (agent, result.to_input_list())  # an id is an object's own while it is held
    waits = getattr(result, "interruptions", None)
    return to_reply(result.final_output, stop_reason="interrupted" if waits else "completed")


@contextmanager
def answered_by(task: Task, *, as_is: Collection[str] = ()) -> Iterator[None]:
    """Answer with the case's functions while inside: the tools of every agent that this context runs.

    For agents that are run by code of their own, out of reach of `run_agent`::

        with answered_by(task):
            return await shop.answer(task.message)
    """
    with _enter_case(task, as_is, open_requested_model(task, open_model)):
        yield


@contextmanager
def _enter_case(task: Task, as_is: Collection[str], model: Any) -> Iterator[None]:
    with require_extra(EXTRA):
        from evalkit.adapters.openai_agents.hooks import SCOPES, install_hooks

    install_hooks()
    with SCOPES.enter(CaseScope(TaskRecorder.get(task), frozenset(as_is), model)):
        yield


def task_model(task: Task) -> Any:
    """Return the task's own model for an agent of the SDK: ``RunConfig(model=task_model(task))``.

    Offline it answers from the case's cassette, written by hand or recorded, with ``--evalkit-model`` live; limits,
    budget and ``--evalkit-record`` hold as for instruction files.
    """
    with require_extra(EXTRA):
        from evalkit.adapters.openai_agents.hooks import AgentsSdkTaskModel

    return AgentsSdkTaskModel(task)


def open_model(spec: ModelSpec) -> Any:
    """Open the model of an evalkit spec ``openai:MODEL?base_url=...`` as the SDK's. Raises UnsupportedModelError."""
    if spec.kind != "openai":
        raise UnsupportedModelError(
            f"the OpenAI Agents SDK can't open '{spec.text}' for evalkit: name an openai:MODEL, or give the run a "
            "model of the SDK's own, as in run_agent(task, agent, run_config=RunConfig(model=...))"
        )
    with require_extra(EXTRA):
        from agents import OpenAIChatCompletionsModel
        from openai import AsyncOpenAI, OpenAIError

    base_url = spec.options.get("base_url")
    try:
        client = AsyncOpenAI(base_url=base_url)
    except OpenAIError:  # there is no key
        if base_url is None:
            raise
        client = AsyncOpenAI(base_url=base_url, api_key="none")  # a server of one's own asks for none
    return OpenAIChatCompletionsModel(spec.model, openai_client=client)
