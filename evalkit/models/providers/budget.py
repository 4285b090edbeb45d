"""Live models under the limits of a run: their rate, and the budget of dollars, tokens or both, one account of each for
all cases and processes.

Processes on one machine share the account's file. Those of several machines have an account each, which reports its own
sum and records what was spent elsewhere. A request under way counts with the average of a request, so that many at a
time overshoot the budget by little.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from evalkit.errors import BudgetSpentError, UsageError
from evalkit.locks import create_lock
from evalkit.models.providers.base import Provider
from evalkit.models.providers.pacing import TRAFFIC, check_budget_left, current_limiter, find_rates, get_limiter
from evalkit.models.providers.table import parse_model_spec
from evalkit.records.prices import PriceList, compute_cost, explain_missing_price
from evalkit.records.settings import Settings, asks_models, goes_live
from evalkit.records.transcript import ModelRequest, ModelTurn


class Account:
    """The spending of a budget of `cap`, in `unit`, which `option` sets. `file` is shared by several processes, each of
    which appends what it takes; `report` is called with the sum of this account whenever it grows."""

    def __init__(
        self,
        cap: float,
        file: Path | None = None,
        *,
        report: Callable[[float], None] | None = None,
        unit: str = "USD",
        option: str = "max_cost",
    ) -> None:
        self.cap = cap
        self._unit, self._option = unit, option
        self._file = file
        self._report = report
        self._elsewhere = 0.0
        self._lock = create_lock()
        self._spent = 0.0
        self._requests = 0
        self._under_way = 0
        self._bytes_read = 0  # bytes of the file
        self._unknown: str | None = None  # why what somebody took can't be told

    def check(self) -> None:
        """Raise BudgetSpentError if nothing is left."""
        with self._lock:
            self._check(0)

    def enter(self) -> None:
        """Count a request that is about to go out. Raises BudgetSpentError if it must not."""
        with self._lock:
            self._check(self._under_way)
            self._under_way += 1

    def leave(self, amount: float | None) -> None:
        """Record what a request took, None if it failed and took nothing."""
        with self._lock:
            self._under_way -= 1
            if amount is not None:
                self._add(amount)

    def add(self, amount: float) -> None:
        """Add what an agent's own client took."""
        with self._lock:
            self._add(amount)

    def record_elsewhere(self, elsewhere: float) -> None:
        """Record the sum of the other processes' accounts, which never shrinks."""
        with self._lock:
            self._elsewhere = max(self._elsewhere, elsewhere)

    def close(self, why: str) -> None:
        """Let no further request go out: what a reply took is unknown, and `why` says so."""
        with self._lock:
            self._unknown = self._unknown or why

    def _check(self, under_way: int) -> None:
        if self._unknown is not None:
            budget = f"the budget of {self._format(self.cap)} ({self._option}) can't be kept"
            raise BudgetSpentError(f"{budget}: {self._unknown}")
        total = self._compute_total()
        expected = total + under_way * (self._spent / self._requests if self._requests else 0.0)
        if expected >= self.cap:
            suffix = f", and {under_way} requests are under way" if under_way and total < self.cap else ""
            raise BudgetSpentError(
                f"the budget of {self._format(self.cap)} ({self._option}) is spent: {self._format(total, 4)}{suffix}"
            )

    def _format(self, amount: float, digits: int = 6) -> str:
        return f"{amount:,.0f} tokens" if self._unit == "tokens" else f"{amount:.{digits}g} {self._unit}"

    def _add(self, amount: float) -> None:
        if self._file is None:
            self._spent += amount
            self._requests += 1
            if self._report is not None:
                self._report(self._spent)
            return
        self._file.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(handle, f"{amount!r}\n".encode())  # so few bytes are appended in one piece
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
                self._spent += sum(costs)
                self._requests += len(costs)
        return self._spent + self._elsewhere


_accounts: dict[tuple[str, float, Path | None], Account] = {}
_lock = create_lock()


def get_account(cap: float, file: Path | None, unit: str = "USD", option: str = "max_cost") -> Account:
    """Return the one account of this process for a budget."""
    with _lock:
        return _accounts.setdefault((unit, cap, file), Account(cap, file, unit=unit, option=option))


class RunBudget:
    """The caps of a run on what live models take: dollars, tokens, both, or none. What they take is counted in
    `TRAFFIC` too."""

    def __init__(self, costs: Account | None, tokens: Account | None, prices: PriceList) -> None:
        self._costs = costs
        self._tokens = tokens
        self._prices = prices
        self._accounts = [account for account in (costs, tokens) if account is not None]

    def check(self) -> None:
        """Raise BudgetSpentError if nothing is left."""
        for account in self._accounts:
            account.check()

    def enter(self, spec: str) -> None:
        """Count a request to the model `spec` that is about to go out. Raises BudgetSpentError if it must not, and
        UsageError for a model without a price where dollars are counted.
        """
        if self._costs is not None:
            _require_price(spec, self._prices)
        entered: list[Account] = []
        try:
            for account in self._accounts:
                account.enter()
                entered.append(account)
        except BudgetSpentError:
            for account in entered:
                account.leave(None)
            raise

    def leave(self, turn: ModelTurn | None, spec: str) -> None:
        """Record what a request took; `turn` is None if it failed, and took nothing."""
        for account in self._accounts:
            account.leave(None if turn is None else self._measure(account, turn, spec))
        if turn is not None:
            self._count(turn, spec)

    def add(self, turn: ModelTurn, spec: str | None = None) -> None:
        """Add what a turn of an agent's own client took."""
        for account in self._accounts:
            amount = self._measure(account, turn, spec)
            if amount is not None:
                account.add(amount)
        self._count(turn, spec)

    def _count(self, turn: ModelTurn, spec: str | None) -> None:
        TRAFFIC.record(turn.usage, compute_cost(turn.usage, (turn.model, spec), self._prices))

    def _measure(self, account: Account, turn: ModelTurn, spec: str | None) -> float | None:
        """Return what a turn took; None where its tokens or its price are not known, and then close the account."""
        model = turn.model or spec or "the model"
        if turn.usage is None:
            if turn.finish_reason not in ("truncated", "empty"):  # a client that went away is told no tokens
                account.close(explain_missing_tokens(model))
            return None
        if account is not self._costs:
            return turn.usage.count_tokens()
        cost = compute_cost(turn.usage, (turn.model, spec), self._prices)
        if cost is None:
            account.close(explain_missing_price(model))
        return cost


def explain_missing_tokens(model: str) -> str:
    """Explain what to do about replies without token counts."""
    return (
        f"a reply of '{model}' came without its tokens; of a stream, OpenAI's clients ask for them by "
        'stream_options={"include_usage": True}'
    )


class MeteredProvider:
    """A live provider of the model `spec`, within the rate and the budget of the run."""

    def __init__(self, live: Provider, spec: str, settings: Settings) -> None:
        self.name = live.name
        self._live = live
        self._spec = spec
        self._budget = get_run_budget(settings)
        parsed = parse_model_spec(spec)
        # Who can't share an account of the rates gets a part of them.
        parts = settings.workers if settings.pace_folder is None else 1
        rates = find_rates(parsed.kind, parsed.model, settings.limits, parts)
        # One rate for a service, whatever the model; a model with limits of its own has them besides.
        service = f"{parsed.kind}@{parsed.options.get('base_url', '')}"
        has_own_limits = f"{parsed.kind}:{parsed.model}" in settings.limits
        provider = f"{parsed.model}@{service}" if has_own_limits else service
        url = parsed.options.get("base_url") or getattr(live, "url", None)
        self._limiter = get_limiter(provider, rates, service, settings.pace_folder, url=url)

    async def turn(self, request: ModelRequest) -> ModelTurn:
        """Take the model's turn. Raises BudgetSpentError when nothing is left, beside what the live provider raises."""
        token, check_token = current_limiter.set(self._limiter), check_budget_left.set(self._budget.check)
        try:
            self._budget.enter(self._spec)
            reply: ModelTurn | None = None
            try:
                reply = await self._live.turn(request)
            finally:
                self._budget.leave(reply, self._spec)
            return reply
        finally:
            check_budget_left.reset(check_token)
            current_limiter.reset(token)

    async def aclose(self) -> None:
        """Do nothing: the live provider is shared, and closed where it was opened."""


def get_token_ledger(ledger: Path) -> Path:
    """Return the file in which processes book tokens, beside the `ledger` of dollars."""
    return ledger.with_name(f"tokens-{ledger.name}")


def get_run_budget(settings: Settings) -> RunBudget:
    """Return the budget for live turns. ``settings.extra["account"]`` is used for the costs."""
    costs: Account | None = None
    tokens: Account | None = None
    if settings.max_cost_usd is not None:
        costs = settings.extra.get("account") or get_account(settings.max_cost_usd, settings.ledger)
    if settings.max_tokens is not None:
        file = None if settings.ledger is None else get_token_ledger(settings.ledger)
        tokens = get_account(settings.max_tokens, file, "tokens", "max_tokens")
    return RunBudget(costs, tokens, settings.price_list)


class ClientBudget:
    """The budget of a live run for the turns of an agent's own client, which its framework reports."""

    def __init__(self, budget: RunBudget, model: str | None) -> None:
        self._budget = budget
        self._model = model

    def check(self) -> None:
        """Raise BudgetSpentError if nothing is left."""
        self._budget.check()

    def add(self, turn: ModelTurn) -> None:
        """Book what `turn` took. One whose tokens or price are not known is the last under this budget."""
        self._budget.add(turn, self._model)


def create_client_budget(settings: Settings) -> ClientBudget | None:
    """Return the budget for turns of an agent's own client. None offline, and while a cassette is recorded, which books
    them itself."""
    return ClientBudget(get_run_budget(settings), settings.model) if goes_live(settings) else None


def check_price(spec: str, settings: Settings) -> None:
    """Raise UsageError for a model without a price, where the run has a cap of dollars."""
    if settings.max_cost_usd is not None:
        _require_price(spec, settings.price_list)


def _require_price(spec: str, prices: PriceList) -> None:
    if prices.find((spec,)) is None:
        raise UsageError(f"max_cost is set, and {explain_missing_price(spec)}")


def check_budget(settings: Settings) -> None:
    """Raise BudgetSpentError if the run goes live and nothing is left to spend."""
    if asks_models(settings):
        get_run_budget(settings).check()
