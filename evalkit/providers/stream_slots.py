"""One function call of a stream: as far as it has arrived, and when it is whole."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from evalkit.model.keyed import FieldAccess
from evalkit.providers.turns import parse_arguments

_PLACEHOLDER = 4  # fragments in which an empty object may come that is none


class StreamCall(FieldAccess, Struct, frozen=True):
    """One complete call. `id` is the wire's, None where it gave none. Fields are also read by key.

    `extra` is what a server hung on the call and wants to see again, e.g. Gemini's signatures behind OpenAI's API.
    """

    name: str
    arguments: dict[str, Any]
    id: str | None = None
    repairs: tuple[str, ...] = ()
    extra: Any = None


class Slot:
    """One call as far as it has arrived."""

    def __init__(self, index: object = None) -> None:
        self.index = index
        self.id = ""
        self.name = ""
        self.is_named_late = False  # behind arguments
        self.fragments: list[str] = []
        self.arguments_object: dict[str, Any] | None = None  # arguments that came as an object, not as text
        self.extra: Any = None  # `extra_content`
        self.is_closed = False  # the wire said that nothing more belongs to it
        self.is_ended = False  # the wire said so, or something came after it
        self.is_finished = False  # a finish reason came: no arguments at all then means no arguments
        self.is_taken = False  # handed out by `take`

    @property
    def text(self) -> str:
        if len(self.fragments) > 1:
            self.fragments = ["".join(self.fragments)]
        return self.fragments[0] if self.fragments else ""

    def add(self, fragment: str) -> None:
        """A further piece of the arguments' text."""
        is_short = len(self.fragments) <= _PLACEHOLDER  # a long text is not joined anew with each piece
        if is_short and fragment.lstrip().startswith("{") and self.text.strip() == "{}":
            self.fragments = []  # the `{}` was a placeholder
        self.fragments.append(fragment)

    @property
    def has_arguments(self) -> bool:
        return bool(self.fragments) or self.arguments_object is not None

    def read_arguments(self) -> dict[str, Any] | None:
        """The arguments object, or None while it is not whole."""
        if self.arguments_object is not None:
            return self.arguments_object
        text = self.text
        if not text.strip():
            return {} if self.is_finished else None
        value, why = parse_arguments(text)
        return value if why is None else None

    def to_call(self) -> StreamCall | None:
        arguments = self.read_arguments() if self.name else None
        return None if arguments is None else StreamCall(self.name, arguments, self.id or None, extra=self.extra)

    @property
    def is_blank(self) -> bool:
        """Nothing of a call came: servers send empty places."""
        return not (self.id or self.name or self.fragments or self.arguments_object)

    def to_message(self) -> dict[str, Any]:
        """The call as its server would have sent it whole, readable or not."""
        arguments = self.text if self.arguments_object is None else self.arguments_object
        call = {"id": self.id or None, "type": "function", "function": {"name": self.name, "arguments": arguments}}
        return call if self.extra is None else {**call, "extra_content": self.extra}

    def format_fragment(self) -> str:
        return f"{self.name or '(no name yet)'}({self.text})"


def sort_slots(slots: list[Slot]) -> list[Slot]:
    """By the wire's index, which is a call's place in a reply that comes whole; as they began where that is no help."""
    indices = [slot.index for slot in slots]
    is_sortable = all(isinstance(index, int) for index in indices) and len(set(indices)) == len(indices)
    return sorted(slots, key=lambda slot: slot.index) if is_sortable else slots  # type: ignore[arg-type,return-value]


def explain_cut_off(fragment: str, reason: str | None, source: str = "stream") -> str:
    """What to say of a stream or reply that ended before its call was whole."""
    excerpt = fragment if len(fragment) <= 200 else fragment[:200] + "…"
    why = f" (finish reason '{reason}')" if reason else ""
    return f"the {source} ended inside a function call{why}: {excerpt}; the call was not made"
