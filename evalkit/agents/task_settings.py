"""The settings in force in a run: those of the command line and the project, of the case, and the defaults."""

from __future__ import annotations

from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from evalkit.records.case import CaseSettings
from evalkit.records.settings import (
    DEFAULT_DEADLINE_S,
    DEFAULT_MAX_ITERATIONS,
    REQUEST_SETTINGS,
    Settings,
    derive_seed,
    get_named_model,
)
from evalkit.records.transcript import ModelRequest

T = TypeVar("T")


class TaskSettings(Struct, frozen=True, kw_only=True):
    """The settings in force. What is None is left to the model; `deadline_s` is for the whole case, and `seed` is the
    run's own, derived from the one that was set."""

    model: str | None = None
    temperature: float | None = None
    seed: int | None = None
    max_output_tokens: int | None = None
    reasoning_effort: str | None = None
    verbosity: str | None = None
    deadline_s: float = DEFAULT_DEADLINE_S
    max_iterations: int = DEFAULT_MAX_ITERATIONS
    strict_mocks: bool = False
    correct_text_calls: bool = False
    real_sleep: bool = False

    def choose_run(self, number: int) -> TaskSettings:
        """Return the settings of run `number` (from 0) of a case: each has a seed of its own."""
        return replace(self, seed=derive_seed(self.seed, f"run {number + 1}")) if number else self

    def complete_request(self, request: ModelRequest) -> ModelRequest:
        """Return a request to the model with the settings of which it says nothing."""
        return replace(
            request, **{name: getattr(self, name) for name in REQUEST_SETTINGS if getattr(request, name) is None}
        )


def merge_settings(case: CaseSettings, settings: Settings) -> TaskSettings:
    """Merge options, which win, the case's own settings, those of the project, and the defaults."""

    def pick(name: str, default: T) -> T:
        sources = (settings, case) if name in settings.from_flags else (case, settings)
        return next((value for source in sources if (value := getattr(source, name)) is not None), default)

    said = {name for name in REQUEST_SETTINGS if getattr(case, name) is not None} | case.left_to_model
    of_requests = {
        name: getattr(case if name in said - settings.from_flags else settings, name) for name in REQUEST_SETTINGS
    }
    return TaskSettings(
        model=get_named_model(settings) or case.model,
        deadline_s=pick("deadline_s", DEFAULT_DEADLINE_S),
        max_iterations=pick("max_iterations", DEFAULT_MAX_ITERATIONS),
        strict_mocks=pick("strict_mocks", False),
        correct_text_calls=bool(case.correct_text_calls),
        real_sleep=settings.real_sleep,
        **of_requests,
    )
