"""What a transcript says of the grades of its run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import Struct, convert
from msgspec.structs import replace

from evalkit.records.codec import to_plain_json
from evalkit.records.transcript import AgentValue, RunFault, Transcript, Usage

NAME = "graders"
KEY = "judge"  # of `expected_output`
OPERATOR = "$judge"
CODE = "judge_failed"


class Vote(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer of one grader of a panel to a criterion."""

    passed: bool
    score: int | None = None
    reason: str = ""
    grader: str | None = None


class Grade(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A model's verdict on one criterion: of `judge`, or of `$judge` on a `value`."""

    criterion: str
    passed: bool
    reason: str = ""
    rubric: AgentValue = None  # the criterion as the case says it, where that is more than words
    score: int | None = None  # on the rubric's scale; of a panel the middle one
    quotes: tuple[str, ...] = ()  # from the evidence, in which they were found
    votes: tuple[Vote, ...] = ()  # of a panel
    value: AgentValue = None  # of `$judge`, in mappings by the `names` that lead to it: by these secrets are known
    names: tuple[str, ...] = ()

    @property
    def is_split(self) -> bool:
        """True if the graders of a panel disagree."""
        return len({vote.passed for vote in self.votes}) > 1


class Grading(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The criteria at one `judge` as a model graded them, in their order; `fault`: why they were not.

    Tokens and money are the grader's, and no part of the run's own.
    """

    place: str  # in the case: "expected_output.judge"; `OPERATOR` for values
    grades: tuple[Grade, ...] = ()
    grader: str | None = None  # "gemini:MODEL", several of a panel with commas; None: nobody, or a person
    cassette: str | None = None  # "recorded", "hand-written"; None: it was asked
    usage: Usage | None = None
    cost_usd: float | None = None
    fault: RunFault | None = None

    @property
    def is_hand_written(self) -> bool:
        """True if a person wrote the grades, and no model."""
        return self.cassette == "hand-written"


Gradings = tuple[Grading, ...]


def read_gradings(data: Any) -> Gradings:
    """Read what a transcript has under the feature's name."""
    return convert(data, Gradings) if data else ()


def get_gradings(transcript: Transcript) -> Gradings:
    """Return what was graded of a run."""
    return read_gradings(transcript.features.get(NAME))


def put_gradings(transcript: Transcript, gradings: Iterable[Grading]) -> Transcript:
    """Return the transcript with these gradings."""
    return replace(transcript, features={**transcript.features, NAME: to_plain_json(tuple(gradings))})
