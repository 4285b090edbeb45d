"""How much may be spent on live models: one account per budget, shared by all cases, and over a file by all processes.

Processes of several machines have no file in common: each has an account of its own, which tells whoever gathers what
it spent, and is told what was spent elsewhere.

Money is spent when a reply has come. A request that is under way counts with what requests cost on average, so that
many at a time overshoot the budget by little.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

from evalkit.errors import BudgetSpentError


class Account:
    """What was spent of `cap_usd`. `file` is shared by several processes, each of which appends what it spends; `tell`
    is called with all that was spent through this account, whenever it has become more."""

    def __init__(
        self, cap_usd: float, file: Path | None = None, *, report: Callable[[float], None] | None = None
    ) -> None:
        self.cap_usd = cap_usd
        self._file = file
        self._report = report
        self._elsewhere_usd = 0.0
        self._lock = threading.Lock()
        self._spent_usd = 0.0
        self._requests = 0
        self._under_way = 0
        self._bytes_read = 0  # bytes of the file
        self._is_unpriced = False

    @property
    def spent_usd(self) -> float:
        with self._lock:
            return self._compute_total()

    def check(self) -> None:
        """Raises BudgetSpentError if nothing is left."""
        with self._lock:
            self._check(0)

    def enter(self) -> None:
        """A request is about to go out. Raises BudgetSpentError if it must not."""
        with self._lock:
            self._check(self._under_way)
            self._under_way += 1

    def leave(self, cost_usd: float | None) -> None:
        """Its reply came and cost so much; None: it failed and cost nothing."""
        with self._lock:
            self._under_way -= 1
            if cost_usd is not None:
                self._add(cost_usd)

    def add(self, cost_usd: float) -> None:
        """Something was spent elsewhere, by the client of an agent's own."""
        with self._lock:
            self._add(cost_usd)

    def record_elsewhere(self, elsewhere_usd: float) -> None:
        """So much was spent through the accounts of other processes. What is known is never taken back."""
        with self._lock:
            self._elsewhere_usd = max(self._elsewhere_usd, elsewhere_usd)

    def mark_unpriced(self) -> None:
        """A reply came without tokens, so nobody knows what it cost."""
        with self._lock:
            self._under_way -= 1
            self._is_unpriced = True

    def _check(self, under_way: int) -> None:
        if self._is_unpriced:
            raise BudgetSpentError(
                f"the model's service reports no tokens, so the budget of {self.cap_usd:g} USD (max_cost) can't be kept"
            )
        total_usd = self._compute_total()
        expected = total_usd + under_way * (self._spent_usd / self._requests if self._requests else 0.0)
        if expected >= self.cap_usd:
            suffix = f", and {under_way} requests are under way" if under_way and total_usd < self.cap_usd else ""
            raise BudgetSpentError(
                f"the budget of {self.cap_usd:g} USD (max_cost) is spent: {total_usd:.4g} USD{suffix}"
            )

    def _add(self, cost_usd: float) -> None:
        if self._file is None:
            self._spent_usd += cost_usd
            self._requests += 1
            if self._report is not None:
                self._report(self._spent_usd)
            return
        self._file.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(handle, f"{cost_usd!r}\n".encode())  # so few bytes are appended in one piece
        finally:
            os.close(handle)

    def _compute_total(self) -> float:
        if self._file is not None and self._file.exists():
            with self._file.open("rb") as lines:
                lines.seek(self._bytes_read)
                complete_lines = lines.read().rpartition(b"\n")[0]
            if complete_lines:
                costs = [float(line) for line in complete_lines.split()]
                self._bytes_read += len(complete_lines) + 1
                self._spent_usd += sum(costs)
                self._requests += len(costs)
        return self._spent_usd + self._elsewhere_usd


_accounts: dict[tuple[float, Path | None], Account] = {}
_lock = threading.Lock()


def get_account(cap_usd: float, file: Path | None) -> Account:
    """The one account of this process for a budget."""
    with _lock:
        return _accounts.setdefault((cap_usd, file), Account(cap_usd, file))
