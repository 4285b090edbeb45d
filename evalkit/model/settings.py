"""Settings of a run. The shells read options and files, and hand them to the core in this form."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct, field
from msgspec.structs import force_setattr

from evalkit.errors import UsageError

DEFAULT_DEADLINE_S = 60.0
DEFAULT_MAX_ITERATIONS = 10
DEFAULT_SEED = 0


class HttpSettings(Struct, frozen=True, kw_only=True):
    """Treatment of requests that an agent's own client sends. `cassettes` None: as far as vcrpy is installed."""

    cassettes: bool | None = None
    ignore_hosts: tuple[str, ...] = ()  # patterns of hosts that are reached as if nothing was there: "*.internal"
    ignore_fields: tuple[str, ...] = ()  # paths in JSON bodies that differ each time: "metadata.run_id"


class Settings(Struct, frozen=True, kw_only=True):
    """Settings of a run; a case's own `settings:` wins over the defaults here, an explicit option over both."""

    root: Path | None = None  # identities and cassettes are relative to it; None: the case's, else the current one
    model: str | None = None  # "gemini:MODEL", "openai:MODEL?base_url=...", None: cassettes, no network
    grader: str | None = None  # the model that grades `judge`, as `model` is written; None: recorded grades alone
    record: str | None = None  # None, "all", "missing", "stale"
    cassettes: Path = Path("mocks/cassettes")
    mocks: Path = Path("mocks")
    deadline_s: float | None = None
    max_iterations: int | None = None
    temperature: float | None = 0.0
    seed: int | None = DEFAULT_SEED
    strict_mocks: bool | None = None
    allow_real: bool = False  # {$real: true} may reach the real function
    real_sleep: bool = False  # mocked latency is slept, not only added to the run's clock
    prices: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # model -> USD per million tokens
    limits: Mapping[str, Any] = field(default_factory=dict)  # requests_per_minute, tokens_per_minute; for all, by model
    max_cost_usd: float | None = None  # live models are asked until so much is spent; the rest is not_run
    ledger: Path | None = None  # the file in which several processes book what they spend
    workers: int = 1  # processes that share the limits
    http: HttpSettings = HttpSettings()
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("root", "cassettes", "mocks", "ledger"):
            if isinstance(getattr(self, name), str):
                force_setattr(self, name, Path(getattr(self, name)))
        deadline, iterations = self.deadline_s, self.max_iterations
        if deadline is not None and (type(deadline) not in (int, float) or not deadline > 0):
            raise UsageError(f"Settings(deadline_s=...) is a number of seconds above 0, got {deadline!r}")
        if iterations is not None and (type(iterations) is not int or iterations < 1):
            raise UsageError(f"Settings(max_iterations=...) is a whole number from 1, got {iterations!r}")
