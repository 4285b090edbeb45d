"""What a model looks like from inside: one request in, one turn out."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Protocol, runtime_checkable
from urllib.parse import parse_qsl

from msgspec import Struct, field

from evalkit.errors import UsageError, did_you_mean
from evalkit.model.transcript import ModelRequest, ModelTurn


@runtime_checkable
class Provider(Protocol):
    """A source of model turns: a service, a cassette, a script. The function-calling loop can't tell which."""

    name: str

    async def turn(self, request: ModelRequest) -> ModelTurn:
        """Answer one request. Raises a MeasurementError when there is no answer; a blocked or empty reply is a turn."""
        ...

    async def aclose(self) -> None:
        """Release what the running event loop holds for this provider. May be called more than once."""
        ...


# From ``gemini:MODEL`` or ``openai:MODEL?base_url=...&stream=1`` to a provider.

# kind -> "module:factory"; the factory takes a ModelSpec. Imported when the first model of its kind is opened.
KINDS = {
    "gemini": "evalkit.providers.gemini.client:open_gemini",
    "openai": "evalkit.providers.openai.client:open_openai",
}


class ModelSpec(Struct, frozen=True):
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
        kinds = ", ".join(f"{name}:MODEL" for name in KINDS)
        guess = did_you_mean(kind, KINDS) if colon else f"; did you mean '{_guess_kind(kind)}:{kind}'?"
        raise UsageError(
            f"unknown model '{spec}'{guess} A model is one of {kinds}"
            if guess
            else f"unknown model '{spec}'; a model is one of {kinds}"
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


def read_options(spec: ModelSpec, options: Any) -> dict[str, Any]:
    """The options of `spec` as fields of the dataclass `options`, by their types. Raises UsageError."""
    types: dict[str, str] = options.__annotations__
    names = [name for name in types if name != "api_key"]
    values: dict[str, Any] = {}
    for name, text in spec.options.items():
        if name == "api_key":
            key = "GEMINI_API_KEY" if spec.kind == "gemini" else "OPENAI_API_KEY"
            raise UsageError(f"{spec.kind}:{spec.model}?api_key=…: a key does not belong there; set {key}")
        if name not in names:
            hint = did_you_mean(name, names) or f"; it has {', '.join(names)}"
            raise UsageError(f"'{spec.text}': {spec.kind} has no option '{name}'{hint}")
        try:
            values[name] = _READERS.get(types[name], str)(text)
        except (ValueError, KeyError):
            raise UsageError(f"'{spec.text}': {name}={text} is no value of '{name}'") from None
    return values


def _parse_flag(text: str) -> bool:
    return {"1": True, "true": True, "0": False, "false": False}[text.lower()]


def _parse_count(text: str) -> int:
    number = int(text)
    if number < 0:
        raise ValueError(text)
    return number


def _parse_positive(text: str) -> float:
    number = float(text)
    if not 0 < number < float("inf"):
        raise ValueError(text)
    return number


_READERS: dict[str, Callable[[str], Any]] = {"bool": _parse_flag, "float": _parse_positive, "int": _parse_count}
