"""One real request, for those who ask for it: GEMINI_API_KEY and EVALKIT_LIVE_MODEL (gemini:MODEL) must be set."""

from __future__ import annotations

import asyncio
import os

import pytest

from evalkit.models.providers.table import open_provider
from evalkit.records.case import Declaration
from evalkit.records.transcript import ModelRequest

MODEL = os.environ.get("EVALKIT_LIVE_MODEL")
KEY = os.environ.get("GEMINI_API_KEY") or os.environ.get("GOOGLE_API_KEY")

pytestmark = pytest.mark.skipif(
    not (MODEL and KEY), reason="goes live only with GEMINI_API_KEY and EVALKIT_LIVE_MODEL=gemini:MODEL set"
)


def test_a_live_model_calls_a_declared_function(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSL_CERT_FILE")  # it names one authority, which is not the service's
    check = Declaration(
        name="check_warranty",
        description="Looks up the warranty of a serial number.",
        parameters={"type": "object", "properties": {"serial_number": {"type": "string"}}},
    )
    request = ModelRequest(
        system="Answer warranty questions. Always look the serial number up first.",
        messages=({"role": "user", "text": "Is SN12345 still under warranty?"},),
        functions=(check,),
        temperature=None,
    )

    async def ask() -> None:
        provider = open_provider(MODEL or "")
        try:
            turn = await provider.turn(request)
        finally:
            await provider.aclose()
        assert [call.name for call in turn.calls] == ["check_warranty"]
        assert turn.usage is not None

    asyncio.run(ask())
