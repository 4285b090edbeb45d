"""The functions a task offers: callables by name, and their declarations in the forms that model APIs take."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from evalkit.agents.signatures import make_async_function, make_sync_function
from evalkit.errors import did_you_mean
from evalkit.model.case import Declaration

if TYPE_CHECKING:
    from evalkit.functions.dispatcher import FakeDispatcher

NO_PARAMETERS: Mapping[str, Any] = {"type": "object", "properties": {}}

FunctionCallable = Callable[..., Any]


class FunctionMapping(Mapping[str, FunctionCallable]):
    """Functions by name, made when asked for: real ones, with a name, a docstring and a signature."""

    def __init__(self, dispatcher: FakeDispatcher, make: Callable[[Declaration], FunctionCallable]) -> None:
        self._dispatcher = dispatcher
        self._make = make

    @property
    def declarations(self) -> tuple[Declaration, ...]:
        """The declared functions; those that are only mocked have no declaration."""
        return self._dispatcher.declarations

    def __getitem__(self, name: str) -> FunctionCallable:
        if name not in self._dispatcher.names:
            names = ", ".join(self) or "none"
            raise KeyError(f"no function '{name}'{did_you_mean(name, self) or ';'} (this case has {names})")
        declared = (function for function in self.declarations if function.name == name)
        return self._make(next(declared, Declaration(name=name)))

    def __iter__(self) -> Iterator[str]:
        return iter(self._dispatcher.names)

    def __len__(self) -> int:
        return len(self._dispatcher.names)


class TaskFunctions(FunctionMapping):
    """``task.functions["check_warranty"](serial_number="SN1")`` is ``task.call("check_warranty", ...)``.

    For async agents ``await task.functions.aio["check_warranty"](serial_number="SN1")`` is ``await task.acall(...)``.
    """

    def __init__(self, dispatcher: FakeDispatcher, call: Callable[..., Any], acall: Callable[..., Any]) -> None:
        super().__init__(dispatcher, lambda declaration: make_sync_function(declaration, call))
        self.aio: Mapping[str, FunctionCallable] = FunctionMapping(
            dispatcher, lambda declared: make_async_function(declared, acall)
        )

    def to_json(self) -> list[dict[str, Any]]:
        """What is declared, as JSON: ``{name, description, parameters, returns}`` each."""
        return [
            {
                "name": function.name,
                "description": function.description,
                "parameters": dict(function.parameters or NO_PARAMETERS),
                **({} if function.returns is None else {"returns": dict(function.returns)}),
            }
            for function in self.declarations
        ]

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
