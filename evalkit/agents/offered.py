"""The functions a task offers: callables by name, and their declarations in the forms that model APIs take."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from evalkit.errors import did_you_mean
from evalkit.model.case import Declaration

if TYPE_CHECKING:
    from evalkit.functions import FakeDispatcher

NO_PARAMETERS: Mapping[str, Any] = {"type": "object", "properties": {}}


class Functions(Mapping[str, Callable[..., Any]]):
    """``task.functions["check_warranty"](serial_number="SN1")`` is ``task.call("check_warranty", ...)``."""

    def __init__(self, dispatcher: FakeDispatcher, call: Callable[..., Any]) -> None:
        self._dispatcher = dispatcher
        self._call = call

    @property
    def declarations(self) -> tuple[Declaration, ...]:
        """The declared functions; those that are only mocked have no declaration."""
        return self._dispatcher.declarations

    def openai_tools(self) -> list[dict[str, Any]]:
        """``tools=`` of an OpenAI-compatible chat completion."""
        return [
            {
                "type": "function",
                "function": {
                    "name": function.name,
                    "description": function.description,
                    "parameters": dict(function.parameters or NO_PARAMETERS),
                },
            }
            for function in self.declarations
        ]

    def gemini_tools(self) -> list[dict[str, Any]]:
        """``tools=`` of a google-genai ``GenerateContentConfig``: one tool with every declaration."""
        declarations = [
            {
                "name": function.name,
                "description": function.description,
                "parameters_json_schema": dict(function.parameters or NO_PARAMETERS),
            }
            for function in self.declarations
        ]
        return [{"function_declarations": declarations}] if declarations else []

    def __getitem__(self, name: str) -> Callable[..., Any]:
        if name not in self._dispatcher.names:
            known = ", ".join(self) or "none"
            raise KeyError(f"no function '{name}'{did_you_mean(name, self) or ';'} (this case has {known})")
        return partial(self._call, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._dispatcher.names)

    def __len__(self) -> int:
        return len(self._dispatcher.names)
