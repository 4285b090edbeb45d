"""What one judgement looks at: the calls under judgement, what came before them, and what is computed from both."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from evalkit.checks.phrases import extract_texts
from evalkit.model.template import Reference
from evalkit.model.transcript import FunctionCall, Transcript
from evalkit.operators.phrases import fold_text

if TYPE_CHECKING:
    from evalkit.checks.grounding import Grounding


class Evidence:
    """One transcript, or the part of it that belongs to one user turn.

    `calls` are judged; `known` are also those of earlier user turns, to which references and `grounded` may lead.
    """

    __slots__ = ("_aliases", "_folded", "_grounding", "_resolve", "calls", "input", "known_calls", "mode", "transcript")

    def __init__(
        self,
        transcript: Transcript,
        case_input: Any,
        mode: str,
        known_calls: tuple[FunctionCall, ...] | None = None,
        aliases: Mapping[str, str] | None = None,
    ) -> None:
        self.transcript = transcript
        self.calls = transcript.calls
        self.known_calls = transcript.calls if known_calls is None else known_calls
        self.input = case_input
        self.mode = mode
        self._aliases = aliases or {}
        self._folded: dict[int, list[str]] = {}
        self._grounding: Grounding | None = None
        self._resolve: Callable[[Reference], Any] | None = None

    @property
    def resolve(self) -> Callable[[Reference], Any]:
        """What a reference in an expected value stands for; raises TemplateError where it leads nowhere."""
        if self._resolve is None:
            from evalkit.checks.references import build_resolver

            self._resolve = build_resolver(self.known_calls, self.input, self._aliases)
        return self._resolve

    @property
    def grounding(self) -> Grounding:
        """The index of what the agent could have known before each call."""
        if self._grounding is None:
            from evalkit.checks.grounding import Grounding

            self._grounding = Grounding(self.input, self.known_calls)
        return self._grounding

    def fold_texts(self, value: Any) -> list[str]:
        """The folded texts of a value of the transcript, folded once however many phrases are looked for."""
        texts = self._folded.get(id(value))  # the transcript keeps the value alive, and with it its id
        if texts is None:
            texts = self._folded[id(value)] = [fold_text(value)] if type(value) is str else extract_texts(value)
        return texts
