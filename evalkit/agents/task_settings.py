"""The settings in force in a run: those of the command line and the project, of the case, and the defaults."""

from __future__ import annotations

from typing import TypeVar

from msgspec import Struct

from evalkit.records.case import CaseSettings
from evalkit.records.settings import (
    DEFAULT_DEADLINE_S,
    DEFAULT_MAX_ITERATIONS,
    DEFAULT_SEED,
    Settings,
    get_named_model,
)

T = TypeVar("T")


class TaskSettings(Struct, frozen=True, kw_only=True):
    """The settings in force. `temperature` None leaves it to the model; `deadline_s` is for the whole case."""

    model: str | None = None
    temperature: float | None = 0.0
    seed: int | None = DEFAULT_SEED
    deadline_s: float = DEFAULT_DEADLINE_S
    max_iterations: int = DEFAULT_MAX_ITERATIONS
    strict_mocks: bool = False
    correct_text_calls: bool = False
    real_sleep: bool = False


def merge_settings(case: CaseSettings, settings: Settings) -> TaskSettings:
    """Merge explicit options, which win, the case's own settings, and the defaults."""

    def pick(explicit: T | None, own: T | None, default: T) -> T:
        return next((value for value in (explicit, own) if value is not None), default)

    return TaskSettings(
        model=get_named_model(settings) or case.model,
        temperature=case.temperature if case.temperature_is_set else settings.temperature,
        seed=settings.seed if case.seed is None else case.seed,
        deadline_s=pick(settings.deadline_s, case.deadline_s, DEFAULT_DEADLINE_S),
        max_iterations=pick(settings.max_iterations, case.max_iterations, DEFAULT_MAX_ITERATIONS),
        strict_mocks=pick(settings.strict_mocks, case.strict_mocks, False),
        correct_text_calls=bool(case.correct_text_calls),
        real_sleep=settings.real_sleep,
    )
