"""From the name in a call to the function it means, and why some calls get no answer."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

from msgspec.structs import replace

from evalkit.errors import FunctionError, did_you_mean
from evalkit.functions.mocks import Answer, MockSet
from evalkit.model.case import Declaration
from evalkit.operators.shown import shown

UNKNOWN, UNMOCKED, MALFORMED = "unknown_function", "unmocked_call", "malformed_call"


class Routes:
    """The functions of one run: what is declared, what is mocked, and which names are aliases."""

    def __init__(self, mocks: MockSet, declarations: Iterable[Declaration]) -> None:
        self._mocks = mocks
        self._declared: dict[str, Declaration] = {}
        self._aliases: dict[str, str] = {}
        self.declare(declarations)

    def declare(self, declarations: Iterable[Declaration]) -> None:
        """Add functions. A second declaration of a name replaces what it says and keeps what it leaves out."""
        for new in declarations:
            old = self._declared.get(new.name)
            self._declared[new.name] = new if old is None or old is new else _merged(old, new)
            if new.aliases:
                self._aliases.update({alias: new.name for alias in new.aliases if alias != new.name})

    @property
    def declarations(self) -> tuple[Declaration, ...]:
        return tuple(self._declared.values())

    @property
    def names(self) -> tuple[str, ...]:
        """Every function that is declared or mocked, by canonical name."""
        return tuple(dict.fromkeys((*self._declared, *map(self.canonical, self._mocks))))

    def canonical(self, name: str) -> str:
        return name if name in self._declared else self._aliases.get(name, name)

    def declaration(self, name: str) -> Declaration | None:
        return self._declared.get(name)

    def mock(self, name: str) -> tuple[str, Answer] | None:
        """The mock of a canonical name and the name under which it is written, which may be an alias."""
        answers = self._mocks.answers
        if name in answers:
            return name, answers[name]
        return next(((key, answers[key]) for key in answers if self.canonical(key) == name), None)

    def refusal(self, name: str, arguments: Any, channel: str, offered: Container[str] | None) -> FunctionError | None:
        """Why a call is not answered, or None: unknown function, arguments that are no object, nothing mocked.

        A model may call only what it was told of. Code that calls the dispatcher directly may use whatever is mocked.
        """
        mocked = self.mock(name) is not None
        if offered is not None and name not in offered:
            return self._unknown(name, [known for known in self.names if known in offered])
        if self._declared and name not in self._declared and (channel != "direct" or not mocked):
            return self._unknown(name, list(self._declared))
        if not isinstance(arguments, dict):
            return FunctionError(
                MALFORMED, f"the arguments of {name} must be a JSON object; got {shown(arguments, 120)}"
            )
        return None if mocked else self._unmocked(name)

    def _unknown(self, name: str, known: list[str]) -> FunctionError:
        listed = f"there are {', '.join(known)}" if known else "there is none"
        return FunctionError(UNKNOWN, f"there is no function {name!r}; {listed}{did_you_mean(name, known)}")

    def _unmocked(self, name: str) -> FunctionError:
        mocked = [self.canonical(key) for key in self._mocks]
        listed = f"mocked are {', '.join(mocked)}" if mocked else "nothing is"
        return FunctionError(UNMOCKED, f"{name} is not mocked in this case; {listed}{did_you_mean(name, mocked)}")


def _merged(old: Declaration, new: Declaration) -> Declaration:
    return replace(
        new,
        description=new.description or old.description,
        parameters=old.parameters if new.parameters is None else new.parameters,
        returns=old.returns if new.returns is None else new.returns,
        patch=new.patch or old.patch,
        aliases=tuple(dict.fromkeys((*old.aliases, *new.aliases))),
    )
