"""Services that take few requests at a time: they get no more, and those that take many are not held back."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from evalkit.errors import ProviderError
from evalkit.models.providers import window
from evalkit.models.providers.adaptive_pace import AdaptivePace
from evalkit.models.providers.pacing import Limiter, RetryPolicy, call_with_retries, current_limiter
from evalkit.text.url import is_near
from tests.providers.test_pacing import simulate


@pytest.mark.parametrize(
    ("places", "size", "slowest", "longest_s", "processes"),
    [(1, (30, 1, 50), 1.05, 2, 1), (1, (30, 1, 50), 1.1, 2, 2), (2, (60, 1, 50), 1.05, 4, 1),
     (4, (60, 3, 50), 1.06, 4, 1), (4, (60, 3, 50), 1.1, 6, 2), (8, (80, 3, 50), 1.12, 6, 1)],
)  # fmt: skip
def test_a_service_nearby_is_kept_busy_and_no_request_waits_there_for_long(
    places: int, size: tuple[int, int, int], slowest: float, longest_s: float, processes: int, tmp_path: Path
) -> None:
    outcome = simulate(None, tmp_path if processes == 2 else None, size=size, places=places, is_near=True, latency_s=1)
    assert outcome.lost == 0
    assert outcome.times <= slowest
    assert outcome.longest_s <= longest_s + 1e-6


def test_one_place_is_found_where_the_first_requests_arrive_in_another_order() -> None:
    learnt = window.Window(limit=window.FIRST)
    at_once = int(window.FIRST)
    for number in range(at_once, 0, -1):
        learnt.record_reply(number, 1.0 + at_once - number, overtaken=number - 1)
    for number in range(2, 7):
        learnt.record_reply(number, float(number), overtaken=0)
    assert learnt.limit == 1


@pytest.mark.parametrize("is_near", [True, False])
@pytest.mark.parametrize("places", [1, 4])
def test_replies_of_different_lengths_hide_a_queue_from_nobody(places: int, is_near: bool) -> None:
    service: dict[str, Any] = {"places": places, "is_near": is_near, "latency_s": 1.0, "spread": 0.5}
    outcome = simulate(size=(50, 3, 50), **service)
    assert outcome.seconds <= 1.15 * unpaced(size=(50, 3, 50), **service).seconds
    assert outcome.longest_s < unpaced(size=(50, 3, 50), **service).longest_s


@pytest.mark.parametrize("spread", [0.0, 0.5, 1.0])
def test_a_service_with_room_for_all_is_not_held_back(spread: float) -> None:
    service: dict[str, Any] = {"places": 50, "latency_s": 1.0, "spread": spread}
    assert simulate(**service).seconds <= 1.1 * unpaced(**service).seconds


def test_a_service_that_gets_more_places_is_asked_more() -> None:
    service: dict[str, Any] = {"places": 1, "is_near": True, "latency_s": 1.0, "changed_at_s": 30.0, "change": 4.0}
    outcome = simulate(size=(100, 3, 50), **service)
    assert outcome.seconds < 0.7 * 300


@pytest.mark.parametrize(
    ("url", "near"),
    [
        ("http://127.0.0.1:8080/v1", True),
        ("http://localhost:11434", True),
        ("http://192.168.1.7:8000", True),
        ("http://[::1]:8000", True),
        ("http://gpu-box:8000/v1", True),
        ("http://nas.local/v1", True),
        ("https://api.openai.com/v1", False),
        ("https://8.8.8.8/v1", False),
        ("", False),
    ],
)
def test_a_near_service_is_told_by_its_host(url: str, near: bool) -> None:
    assert is_near(url) is near


def unpaced(**service: Any) -> Any:
    """Simulate the same without a limit of requests at a time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(window, "EVIDENCE", float("inf"))
        patch.setattr(window, "FIRST", 1e9)
        return simulate(**{**service, "is_near": False})


@pytest.mark.parametrize(("is_near", "places"), [(True, 1), (False, None)])
def test_a_server_nearby_that_closes_connections_gets_fewer_at_a_time(is_near: bool, places: int | None) -> None:
    limiter = Limiter(pace=AdaptivePace(is_near=is_near))

    async def break_the_second() -> None:
        limiter.leave(await limiter.enter(), None)  # the first goes alone where the server is near
        first = await limiter.enter()

        async def send() -> None:
            raise ProviderError("Server disconnected")

        token = current_limiter.set(limiter)
        with pytest.raises(ProviderError):
            await call_with_retries(send, RetryPolicy(retries=0))
        current_limiter.reset(token)
        limiter.leave(first, None)

    asyncio.run(break_the_second())

    assert limiter.pace.places == places
