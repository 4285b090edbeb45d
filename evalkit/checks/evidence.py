"""What one judgement looks at: the calls under judgement, what came before them, and what is computed from both."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from evalkit.checks.phrases import text_pieces
from evalkit.model.template import Reference
from evalkit.model.transcript import FunctionCall, Transcript
from evalkit.operators.phrases import fold_text

if TYPE_CHECKING:
    from evalkit.checks.grounding import Grounding


class Evidence:
    """One transcript, or the part of it that belongs to one user turn.

    `calls` are judged; `known` are also those of earlier user turns, to which references and `grounded` may lead.
    """

    __slots__ = ("_aliases", "_folded", "_grounding", "_resolve", "calls", "input", "known", "mode", "transcript")

    def __init__(
        self,
        transcript: Transcript,
        given: Any,
        mode: str,
        known: tuple[FunctionCall, ...] | None = None,
        aliases: Mapping[str, str] | None = None,
    ) -> None:
        self.transcript = transcript
        self.calls = transcript.calls
        self.known = transcript.calls if known is None else known
        self.input = given
        self.mode = mode
        self._aliases = aliases or {}
        self._folded: dict[int, list[str]] = {}
        self._grounding: Grounding | None = None
        self._resolve: Callable[[Reference], Any] | None = None

    @property
    def resolve(self) -> Callable[[Reference], Any]:
        """What a reference in an expected value stands for; raises TemplateError where it leads nowhere."""
        if self._resolve is None:
            from evalkit.checks.references import resolver

            self._resolve = resolver(self.known, self.input, self._aliases)
        return self._resolve

    @property
    def grounding(self) -> Grounding:
        """The index of what the agent could have known before each call."""
        if self._grounding is None:
            from evalkit.checks.grounding import Grounding

            self._grounding = Grounding(self.input, self.known)
        return self._grounding

    def texts(self, value: Any) -> list[str]:
        """The folded texts of a value of the transcript, folded once however many phrases are looked for."""
        found = self._folded.get(id(value))  # the transcript keeps the value alive, and with it its id
        if found is None:
            found = self._folded[id(value)] = [fold_text(value)] if type(value) is str else text_pieces(value)
        return found
