"""The model that a run asks for, in a framework's own form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from evalkit.agents.task import Task
from evalkit.errors import MeasurementError
from evalkit.providers.opening import ModelSpec, parse_model_spec

__all__ = ["ModelSpec", "UnsupportedModelError", "open_requested_model"]


class UnsupportedModelError(MeasurementError):
    """The run asks for a model that the framework can't open."""

    code = "unsupported_model"


def open_requested_model(task: Task, open_model: Callable[[ModelSpec], Any]) -> Any:
    """What `open_model` makes of ``task.model`` (``--evalkit-model``, ``settings.model``); None if it names none: the
    agent's own model is asked.
    """
    return None if task.model is None else open_model(parse_model_spec(task.model))
