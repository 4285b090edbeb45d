"""Many cases: how they are run, one after another or overlapping, with the same verdicts either way."""

from __future__ import annotations

from evalkit.execution.executor import Executor as Executor
from evalkit.execution.flight import RunRequest as RunRequest

__all__ = ["Executor", "RunRequest"]
