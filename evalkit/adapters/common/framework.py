"""The model that a run asks for, in a framework's own form."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from evalkit.agents.reply import Reply
from evalkit.agents.task import Task
from evalkit.errors import MeasurementError
from evalkit.providers.table import ModelSpec, parse_model_spec


class UnsupportedModelError(MeasurementError):
    """The run asks for a model that the framework can't open."""

    code = "unsupported_model"


def open_requested_model(task: Task, open_model: Callable[[ModelSpec], Any]) -> Any:
    """What `open_model` makes of ``task.model`` (``--evalkit-model``, ``settings.model``); None if it names none: the
    agent's own model is asked.
    """
    return None if task.model is None else open_model(parse_model_spec(task.model))


# What comes out of a framework's run, as evalkit's Reply, and the frameworks themselves: installed, or named.


class MissingExtraError(MeasurementError):
    """The framework is not installed."""

    code = "missing_extra"


@contextmanager
def require_extra(name: str) -> Iterator[None]:
    """Around the imports of the framework that comes with ``pytest-evalkit[name]``."""
    try:
        yield
    except ImportError as error:
        raise MissingExtraError(
            f"this agent's adapter needs the extra: pip install 'pytest-evalkit[{name}]' ({error})"
        ) from error


def to_reply(output: Any, *, stop_reason: str = "completed") -> Reply:
    """The reply for a framework's final output: a text as it is; of anything else its JSON, with the data under
    ``data["output"]``; nothing for None.
    """
    if output is None or isinstance(output, str):
        return Reply(output or "", stop_reason=stop_reason)
    from pydantic_core import to_jsonable_python  # comes with google-genai, and with every framework here

    data = to_jsonable_python(output, serialize_unknown=True)
    return Reply(json.dumps(data, ensure_ascii=False), stop_reason=stop_reason, data={"output": data})
