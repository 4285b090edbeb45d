"""What a session is told of live models and of agents' own clients: rates, the budget, HTTP cassettes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evalkit.model.settings import HttpSettings

_RATES = ("requests_per_minute", "tokens_per_minute")


def read_live_settings(read_option: Callable[[str], Any], config: pytest.Config, results: Path) -> dict[str, Any]:
    """Fields of `Settings`. Workers of xdist divide the rates among them, and book what they spend in one file."""
    worker: dict[str, Any] = getattr(config, "workerinput", {})
    limits = {
        **(read_option("limits") or {}),
        **{name: rate for name in _RATES if (rate := read_option(name)) is not None},
    }
    cap = read_option("max_cost")
    return {
        "limits": limits,
        "max_cost_usd": cap,
        "ledger": locate_ledger(results, worker["testrunuid"]) if worker and cap is not None else None,
        "workers": worker.get("workercount", 1),
        "http": HttpSettings(**(read_option("http") or {})),
    }


def locate_ledger(results: Path, run: str) -> Path:
    """The file in which the workers of one run book what they spend."""
    return results.parent / f"spent-{run}.txt"
