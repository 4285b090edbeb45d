"""The functions of a run as plain JSON, for agents that are told of them over a wire."""

from __future__ import annotations

from typing import Any

from evalkit.functions.dispatcher import FakeDispatcher
from evalkit.model.case import Declaration


def describe_functions(dispatcher: FakeDispatcher) -> list[dict[str, Any]]:
    """``{name, description, parameters, returns?}`` of every function that can be called, the declared ones first.

    One that is only mocked takes any arguments: what is not listed, most clients do not call.
    """
    declarations = {function.name: function for function in dispatcher.declarations}
    return [_describe_function(declarations.get(name) or Declaration(name=name)) for name in dispatcher.names]


def _describe_function(function: Declaration) -> dict[str, Any]:
    description: dict[str, Any] = {
        "name": function.name,
        "description": function.description,
        "parameters": {"type": "object", **(function.parameters or {})},
    }
    if function.returns is not None:
        description["returns"] = dict(function.returns)
    return description
