"""The models and clients that a framework opens for a run, instead of its agent's own."""

from __future__ import annotations

from collections.abc import Callable
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


def open_requested_model(task: Task, open_model: Callable[[ModelSpec], M]) -> M | None:
    """Open ``task.model`` (``--evalkit-model``, ``settings.model``) with `open_model`; None if it names none."""
    return None if task.model is None else open_model(parse_model_spec(task.model))


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
