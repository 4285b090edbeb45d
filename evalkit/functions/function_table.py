"""From the name in a call to the function it means, and why some calls get no answer."""

from __future__ import annotations

from collections.abc import Container, Iterable

from msgspec.structs import replace

from evalkit.errors import FunctionError, did_you_mean
from evalkit.functions.mocks.answers import Answer, MockSet
from evalkit.model.case import Declaration
from evalkit.text.format import format_value

UNKNOWN, UNMOCKED, MALFORMED = "unknown_function", "unmocked_call", "malformed_call"


class FunctionTable:
    """The functions of one run: what is declared, what is mocked, and which names are aliases."""

    def __init__(self, mocks: MockSet, declarations: Iterable[Declaration]) -> None:
        self._mocks = mocks
        self._declarations: dict[str, Declaration] = {}
        self._aliases: dict[str, str] = {}
        self.declare(declarations)

    def declare(self, declarations: Iterable[Declaration]) -> None:
        """Add functions. A second declaration of a name replaces what it says and keeps what it leaves out."""
        for new in declarations:
            old = self._declarations.get(new.name)
            self._declarations[new.name] = new if old is None or old is new else _merge_declarations(old, new)
            if new.aliases:
                self._aliases.update({alias: new.name for alias in new.aliases if alias != new.name})

    @property
    def declarations(self) -> tuple[Declaration, ...]:
        return tuple(self._declarations.values())

    @property
    def names(self) -> tuple[str, ...]:
        """Every function that is declared or mocked, by canonical name."""
        return tuple(dict.fromkeys((*self._declarations, *map(self.resolve_name, self._mocks))))

    def resolve_name(self, name: str) -> str:
        return name if name in self._declarations else self._aliases.get(name, name)

    def find_declaration(self, name: str) -> Declaration | None:
        return self._declarations.get(name)

    def find_mock(self, name: str) -> tuple[str, Answer] | None:
        """Return the mock of a canonical name and the name under which it is written, which may be an alias."""
        answers = self._mocks.answers
        if name in answers:
            return name, answers[name]
        return next(((key, answers[key]) for key in answers if self.resolve_name(key) == name), None)

    def find_refusal(
        self, name: str, arguments: object, channel: str, offered_names: Container[str] | None
    ) -> FunctionError | None:
        """Why a call is not answered, or None: unknown function, arguments that are no object, nothing mocked.

        A model may call only what it was told of. Code that calls the dispatcher directly may use whatever is mocked.
        """
        is_mocked = self.find_mock(name) is not None
        if offered_names is not None and name not in offered_names:
            return self._refuse_unknown(name, [candidate for candidate in self.names if candidate in offered_names])
        if self._declarations and name not in self._declarations and (channel != "direct" or not is_mocked):
            return self._refuse_unknown(name, list(self._declarations))
        if not isinstance(arguments, dict):
            return FunctionError(
                MALFORMED, f"the arguments of {name} must be a JSON object; got {format_value(arguments, 120)}"
            )
        return None if is_mocked else self._refuse_unmocked(name)

    def _refuse_unknown(self, name: str, names: list[str]) -> FunctionError:
        listed = f"there are {', '.join(names)}" if names else "there is none"
        return FunctionError(UNKNOWN, f"there is no function {name!r}; {listed}{did_you_mean(name, names)}")

    def _refuse_unmocked(self, name: str) -> FunctionError:
        mock_names = [self.resolve_name(key) for key in self._mocks]
        listed = f"mocked are {', '.join(mock_names)}" if mock_names else "nothing is"
        return FunctionError(UNMOCKED, f"{name} is not mocked in this case; {listed}{did_you_mean(name, mock_names)}")


def _merge_declarations(old: Declaration, new: Declaration) -> Declaration:
    return replace(
        new,
        description=new.description or old.description,
        parameters=old.parameters if new.parameters is None else new.parameters,
        returns=old.returns if new.returns is None else new.returns,
        patch=new.patch or old.patch,
        aliases=tuple(dict.fromkeys((*old.aliases, *new.aliases))),
    )
