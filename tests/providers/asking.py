"""Asks a provider as a run does."""

from __future__ import annotations

import asyncio

from evalkit.models.providers.base import Provider
from evalkit.records.transcript import ModelRequest, ModelTurn

HELLO = ModelRequest(messages=({"role": "user", "text": "hi"},))


def ask_provider(provider: Provider, *requests: ModelRequest) -> ModelTurn:
    """Send the requests, close the provider, and return the last turn."""

    async def ask() -> ModelTurn:
        try:
            for request in requests or (HELLO,):
                turn = await provider.turn(request)
            return turn
        finally:
            await provider.aclose()

    return asyncio.run(ask())
