"""Live models under the limits of the run: not faster than the service allows, and not beyond the budget."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evalkit.errors import UsageError
from evalkit.model.prices import compute_cost, find_price
from evalkit.model.settings import Settings
from evalkit.model.transcript import ModelRequest, ModelTurn

if TYPE_CHECKING:
    from evalkit.providers.base import Provider
    from evalkit.providers.budget import Account


class MeteredProvider:
    """Hands requests on to `live`, the model that `spec` names, and counts."""

    def __init__(self, live: Provider, spec: str, settings: Settings) -> None:
        from evalkit.providers.base import parse_model_spec
        from evalkit.providers.pacing import find_rates, get_limiter

        self.name = live.name
        self._live = live
        self._spec = spec
        self._prices = settings.prices
        self._account = get_run_account(settings)
        parsed = parse_model_spec(spec)
        rates = find_rates(parsed.kind, parsed.model, settings.limits, settings.workers)
        place = parsed.options.get("base_url", "")
        self._limiter = get_limiter(f"{parsed.kind}:{parsed.model}@{place}", rates)

    async def turn(self, request: ModelRequest) -> ModelTurn:
        """The model's turn. Raises BudgetSpentError when nothing is left, beside what the live provider raises."""
        from evalkit.providers.pacing import current_limiter

        token = current_limiter.set(self._limiter)
        try:
            return await (
                self._live.turn(request) if self._account is None else self._take_paid_turn(request, self._account)
            )
        finally:
            current_limiter.reset(token)

    async def _take_paid_turn(self, request: ModelRequest, account: Account) -> ModelTurn:
        if find_price((self._spec,), self._prices) is None:
            raise UsageError(describe_missing_price(self._spec))
        account.enter()
        cost: float | None = None
        is_known = True
        try:
            reply = await self._live.turn(request)
            cost = compute_cost(reply.usage, (reply.model, self._spec), self._prices)
            is_known = cost is not None
        finally:
            account.leave(cost) if is_known else account.mark_unpriced()
        return reply

    async def aclose(self) -> None:
        """The live provider is shared, and closed by whoever opened it."""


def get_run_account(settings: Settings) -> Account | None:
    """Where live turns are booked; None without a budget. ``settings.extra["account"]`` is a shell's own."""
    if settings.max_cost_usd is None:
        return None
    shell_account: Account | None = settings.extra.get("account")
    if shell_account is not None:
        return shell_account
    from evalkit.providers.budget import get_account

    return get_account(settings.max_cost_usd, settings.ledger)


class ClientBudget:
    """Keeps the budget of a live run where the agent's own client asks, as its framework tells of it."""

    def __init__(self, account: Account, settings: Settings) -> None:
        self._account = account
        self._model = settings.model
        self._prices = settings.prices

    def check(self) -> None:
        """Raises BudgetSpentError if nothing is left."""
        self._account.check()

    def add(self, turn: ModelTurn) -> None:
        """Book what `turn` cost; nothing where its tokens or its model's price are not known."""
        cost = compute_cost(turn.usage, (turn.model, self._model), self._prices)
        if cost is not None:
            self._account.add(cost)


def create_client_budget(settings: Settings) -> ClientBudget | None:
    """Where the turns of an agent's own client are booked. None without a budget, offline, and where a cassette is
    recorded, which books them itself.
    """
    account = get_run_account(settings)
    goes_live = settings.model is not None and settings.record is None
    return None if account is None or not goes_live else ClientBudget(account, settings)


def check_budget(settings: Settings) -> None:
    """Raises BudgetSpentError if the run goes live and nothing is left to spend."""
    account = get_run_account(settings)
    if account is not None and (settings.record is not None or settings.model is not None):
        account.check()


def describe_missing_price(spec: str) -> str:
    """A budget without a price could not be kept."""
    name = spec.partition(":")[2].partition("?")[0]
    return (
        f"max_cost is set, and '{name}' has no price: write [tool.evalkit.prices] "
        f'"{name}" = {{input = ..., output = ...}}, in USD per million tokens'
    )
