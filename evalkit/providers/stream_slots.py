"""One function call of a stream: as far as it has arrived, and when it is whole."""

from __future__ import annotations

from typing import Any

from evalkit.providers.turns import parse_arguments
from evalkit.record import record


@record(frozen=True, slots=True)
class StreamCall:
    """One complete call. `id` is the wire's, None where it gave none. Fields are also read by key.

    `extra` is what a server hung on the call and wants to see again, e.g. Gemini's signatures behind OpenAI's API.
    """

    name: str
    arguments: dict[str, Any]
    id: str | None = None
    repairs: tuple[str, ...] = ()
    extra: Any = None

    def __getitem__(self, key: str) -> Any:
        if key not in self.__slots__:
            raise KeyError(key)
        return getattr(self, key)


class Slot:
    """One call as far as it has arrived."""

    def __init__(self, index: object = None) -> None:
        self.index = index
        self.id = ""
        self.name = ""
        self.fragments: list[str] = []
        self.whole: dict[str, Any] | None = None  # arguments that came as an object, not as text
        self.extra: Any = None  # `extra_content`
        self.ended = False  # the wire said so, or something came after it
        self.finished = False  # a finish reason came: no arguments at all then means no arguments
        self.taken = False  # handed out by `take`

    @property
    def text(self) -> str:
        if len(self.fragments) > 1:
            self.fragments = ["".join(self.fragments)]
        return self.fragments[0] if self.fragments else ""

    def arguments(self) -> dict[str, Any] | None:
        """The arguments object, or None while it is not whole."""
        if self.whole is not None:
            return self.whole
        text = self.text
        if not text.strip():
            return {} if self.finished else None
        value, why = parse_arguments(text)
        return value if why is None else None

    def call(self) -> StreamCall | None:
        arguments = self.arguments() if self.name else None
        return None if arguments is None else StreamCall(self.name, arguments, self.id or None, extra=self.extra)

    def shown(self) -> str:
        return f"{self.name or '(no name yet)'}({self.text})"
