"""The functions of a run as plain JSON, for agents that are told of them over a wire."""

from __future__ import annotations

from typing import Any

from evalkit.functions.dispatcher import FakeDispatcher
from evalkit.model.case import Declaration


def offered_functions(dispatcher: FakeDispatcher) -> list[dict[str, Any]]:
    """``{name, description, parameters, returns?}`` of every function that can be called, the declared ones first.

    One that is only mocked takes any arguments: what is not listed, most clients do not call.
    """
    declared = {function.name: function for function in dispatcher.declarations}
    return [_as_json(declared.get(name) or Declaration(name=name)) for name in dispatcher.names]


def _as_json(function: Declaration) -> dict[str, Any]:
    listed: dict[str, Any] = {
        "name": function.name,
        "description": function.description,
        "parameters": {"type": "object", **(function.parameters or {})},
    }
    if function.returns is not None:
        listed["returns"] = dict(function.returns)
    return listed
