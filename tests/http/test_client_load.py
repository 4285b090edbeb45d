"""A server that is the queue of agents' own clients is told with the number of requests that it takes."""

from __future__ import annotations

import pytest

from evalkit.models.cassettes.http.client_load import ClientLoad


@pytest.mark.parametrize(("places", "expected"), [(1, {"laptop:8080": 1}), (20, {})])
def test_a_server_with_one_place_is_found(
    places: int, expected: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twenty requests at once, a second each; one that breaks off says nothing."""
    clock = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    load = ClientLoad()
    load.end(load.begin("laptop:8080"), is_answered=False)
    sent = [load.begin("laptop:8080") for _ in range(20)]
    for number, request in enumerate(sent):
        clock[0] = 1.0 + number // places
        load.end(request, is_answered=True)
        load.end(request, is_answered=True)
    assert load.list_places() == expected
