"""From ``gemini:MODEL`` or ``openai:MODEL?base_url=...&stream=1`` to a provider."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from urllib.parse import parse_qsl

from evalkit.errors import UsageError, did_you_mean
from evalkit.providers.protocol import Provider

# kind -> "module:factory"; the factory takes a ModelSpec. Imported when the first model of its kind is opened.
KINDS = {"gemini": "evalkit.providers.gemini:open_gemini"}


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A parsed ``kind:model?option=value&...``. `text` is how it was written."""

    kind: str
    model: str
    options: dict[str, str] = field(default_factory=dict)
    text: str = ""


def parse_model_spec(spec: str) -> ModelSpec:
    """Split `spec`. Raises UsageError for an unknown kind, no model, or an option without a value."""
    if not isinstance(spec, str) or not spec.strip():
        raise UsageError(f"a model is written kind:model, e.g. gemini:MODEL, got {spec!r}")
    kind, colon, rest = spec.strip().partition(":")
    if kind not in KINDS:
        known = ", ".join(f"{name}:MODEL" for name in KINDS)
        guess = did_you_mean(kind, KINDS) if colon else f"; did you mean '{_guess_kind(kind)}:{kind}'?"
        raise UsageError(
            f"unknown model '{spec}'{guess} A model is one of {known}"
            if guess
            else f"unknown model '{spec}'; a model is one of {known}"
        )
    model, _, query = rest.partition("?")
    if not model:
        raise UsageError(f"'{spec}' names no model; write {kind}:MODEL")
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
    except ValueError:
        raise UsageError(f"the options of '{spec}' are not name=value&name=value") from None
    return ModelSpec(kind, model, dict(pairs), spec)


def _guess_kind(model: str) -> str:
    return "gemini" if model.startswith(("gemini", "models/")) or len(KINDS) == 1 else "openai"


def open_provider(spec: str) -> Provider:
    """The provider that `spec` names: ``gemini:MODEL``, options as ``?name=value&name=value``.

    Nothing is imported or connected before the first turn. Raises UsageError for a spec that makes no sense.
    """
    parsed = parse_model_spec(spec)
    module, _, name = KINDS[parsed.kind].partition(":")
    factory: Callable[[ModelSpec], Provider] = getattr(import_module(module), name)
    return factory(parsed)
