"""Which call of the model's is being carried out when code calls a function: its turn, its channel, its id.

The calls of the latest turn come first: what an older turn asked for and nobody carried out was most likely given up.
A reply without native calls may hold calls as text, which a loop of the agent's own reads and carries out; they are
looked for only when code calls a function that no native call asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from evalkit.model.case import Declaration
from evalkit.model.transcript import ModelCall, ModelTurn


class DeclaredFunctions(Protocol):
    """The functions of a run: `canonical` gives the name that an alias stands for."""

    @property
    def declarations(self) -> tuple[Declaration, ...]: ...
    @property
    def canonical(self) -> Callable[[str], str]: ...


class PendingToolCalls:
    """Calls that the model has asked for and code may still carry out. The caller holds a lock."""

    def __init__(self) -> None:
        self._calls: list[tuple[int, ModelCall]] = []
        self._texts: list[tuple[int, str]] = []

    def add(self, index: int, calls: Sequence[ModelCall]) -> None:
        self._calls.extend((index, call) for call in calls)

    def add_turn(self, index: int, turn: ModelTurn) -> None:
        """The calls of a whole turn, or the text that may hold some."""
        self.add(index, turn.calls)
        if turn.text and not turn.calls:
            self._texts.append((index, turn.text))

    def clear(self) -> None:
        """They are carried out now, all of them."""
        self._calls.clear()
        self._texts.clear()

    def discard_turn(self, index: int) -> None:
        """Those of turn `index` are somebody else's to carry out."""
        self._calls = [(turn, call) for turn, call in self._calls if turn != index]
        self._texts = [(turn, text) for turn, text in self._texts if turn != index]

    def take(self, name: str, arguments: Mapping[str, Any], declared: DeclaredFunctions) -> dict[str, Any]:
        """What the record of a call should say of its origin; the call is no longer open. Empty if no model asked."""
        if not self._calls and not self._texts:
            return {}
        self._read_texts(declared)
        canonical = declared.canonical(name)
        best = -1
        for position, (turn, call) in enumerate(self._calls):
            same = declared.canonical(call.name) == canonical and _is_equal(call.arguments, arguments)
            if same and (best < 0 or turn > self._calls[best][0]):
                best = position
        if best < 0:
            return {}
        turn, call = self._calls.pop(best)
        return {"turn": turn, "channel": call.channel, "call_id": call.call_id, "repairs": call.repairs}

    def _read_texts(self, declared: DeclaredFunctions) -> None:
        if not self._texts:
            return
        from evalkit.providers.textcalls import parse_text_calls

        functions = declared.declarations
        for index, text in self._texts:
            parsed = parse_text_calls(text, functions) if functions else parse_text_calls(text)
            self.add(
                index,
                [
                    ModelCall(name=it.name, arguments=it.arguments, channel="text", repairs=it.repairs, raw=it.raw)
                    for it in parsed.calls
                ],
            )
        self._texts.clear()


def _is_equal(expected: Any, actual: Any) -> bool:
    try:
        return bool(expected == actual)
    except Exception:  # patched code passes what it likes: arrays have no truth value
        return False
