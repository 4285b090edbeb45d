"""The models that are asked instead of an agent's own, as a framework opens them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from evalkit.agents.task import Task
from evalkit.errors import MeasurementError
from evalkit.models.providers.table import ModelSpec, parse_model_spec

if TYPE_CHECKING:
    from openai import AsyncOpenAI

M = TypeVar("M")


class UnsupportedModelError(MeasurementError):
    """The run asks for a model that the framework can't open."""

    code = "unsupported_model"


def choose_model(task: Task, open_model: Callable[[ModelSpec], M], build_task_model: Callable[[Task], M]) -> M | None:
    """Return the model that is asked instead of the agent's own; None if the agent keeps its own.

    It is the task's own model where the case's cassette of model turns answers, and the one that `open_model` opens
    where the run or the case names a model (``--evalkit-model``, ``settings.model``).
    """
    if task.follows_cassette:
        return build_task_model(task)
    return None if task.model is None else open_model(parse_model_spec(task.model))


def uses_responses_api(spec: ModelSpec) -> bool:
    """Return whether an ``openai:`` model is asked by the responses API, as ``?api=`` says: by default at OpenAI
    itself, and not at a `base_url`."""
    default = "chat" if "base_url" in spec.options else "responses"
    return spec.options.get("api", default) == "responses"


def refuse_model(framework: str, spec: ModelSpec, kinds: Sequence[str], example: str) -> UnsupportedModelError:
    """Build the error about a model of a kind that `framework` can't open for evalkit."""
    models = " or ".join(f"{kind}:MODEL" for kind in kinds)
    return UnsupportedModelError(
        f"{framework} can't open '{spec.text}' for evalkit: name {models}, or give the run a model of the framework's "
        f"own, as in {example}"
    )


def open_openai_client(base_url: str | None) -> AsyncOpenAI:
    """Open a client of an OpenAI-compatible service. A server of one's own, at `base_url`, needs no key."""
    from openai import AsyncOpenAI, OpenAIError  # comes with the frameworks that speak to it

    try:
        return AsyncOpenAI(base_url=base_url)
    except OpenAIError:  # there is no key
        if base_url is None:
            raise
        return AsyncOpenAI(base_url=base_url, api_key="none")


async def close_client(model: object, attribute: str) -> None:
    """Close the client that a framework's `model` holds as `attribute`, if it has one."""
    client = getattr(model, attribute, None)
    if client is not None:
        await client.close()
