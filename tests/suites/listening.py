"""What a case's agent asks the model, overheard between the agent and its cassette; and the same as it goes out."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import evalkit
from evalkit.models.cassettes.model import CassetteProvider
from evalkit.models.providers.gemini import GeminiOptions, GeminiProvider
from evalkit.records.transcript import ModelRequest, ModelTurn
from evalkit.runner.run_case import run_case
from tests.servers.replay import ReplayServer
from tests.suites.suite import ROOT, Suite

DONE = '{"candidates": [{"content": {"parts": [{"text": "Done."}]}, "finishReason": "STOP"}]}'


@dataclass
class Listening:
    """A provider that passes on what `inner` answers, and keeps the requests."""

    inner: CassetteProvider
    requests: list[ModelRequest] = field(default_factory=list)
    name: str = "cassette"

    @property
    def cassette(self) -> Any:
        return self.inner.cassette

    async def turn(self, request: ModelRequest) -> ModelTurn:
        self.requests.append(request)
        return await self.inner.turn(request)

    async def aclose(self) -> None:
        await self.inner.aclose()


def overheard(suite: Suite, stem: str) -> tuple[evalkit.Verdict, list[ModelRequest]]:
    """The verdict of a case, and every request that its agent made."""
    listening = Listening(CassetteProvider(suite.cassettes / f"{stem}.yaml"))
    settings = evalkit.Settings(root=ROOT, extra={"provider": lambda case_id, run: listening})
    verdict = run_case(suite.case(stem), settings=settings)
    assert verdict.status == "passed", [str(reason) for reason in verdict.reasons]
    return verdict, listening.requests


def told(request: ModelRequest) -> list[str]:
    """The texts of the user's side, in order."""
    return [message["text"] for message in request.messages if message["role"] == "user"]


def sent(server: ReplayServer, requests: Iterable[ModelRequest], *, base_url: str | None = None) -> list[Any]:
    """The bodies that reach Gemini's API for these requests, as wire JSON."""

    async def ask() -> None:
        gemini = GeminiProvider("m", GeminiOptions(base_url=base_url or server.url, api_key="k", retries=0))
        try:
            for request in requests:
                server.answers.append(server.answer(DONE))
                await gemini.turn(request)
        finally:
            await gemini.aclose()

    before = len(server.received)
    asyncio.run(ask())
    return [received.body for received in server.received[before:]]
