"""OpenAI's responses over a WebSocket are observed, live and recorded; a recording says that it can't be replayed."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from evalkit.agents.task import Task
from evalkit.records.verdict import Verdict
from evalkit.spec.load import case_from_dict

sync_server = pytest.importorskip("websockets.sync.server")

Run = Callable[..., Verdict]
CALL = {
    "id": "fc_1",
    "type": "function_call",
    "call_id": "c1",
    "name": "check",
    "arguments": "{}",
    "status": "completed",
}
RESPONSE: dict[str, Any] = {
    "id": "resp_1", "object": "response", "created_at": 1, "model": "m", "status": "completed", "output": [CALL],
    "parallel_tool_calls": True, "tool_choice": "auto", "tools": [],
    "usage": {"input_tokens": 5, "output_tokens": 2, "total_tokens": 7},
}  # fmt: skip
EVENTS: list[dict[str, Any]] = [
    {"type": "response.created", "response": {**RESPONSE, "output": [], "status": "in_progress"}},
    {"type": "response.output_item.done", "output_index": 0, "item": CALL},
    {"type": "response.completed", "response": RESPONSE},
]
CREATE = {"type": "response.create", "model": "m", "input": [{"role": "user", "content": "hi"}]}


@pytest.fixture
def url() -> Iterator[str]:
    def answer(connection: Any) -> None:
        for message in connection:
            if json.loads(message)["type"] == "response.create":
                for number, event in enumerate(EVENTS):
                    connection.send(json.dumps({**event, "sequence_number": number}))

    with sync_server.serve(answer, "127.0.0.1", 0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"ws://127.0.0.1:{server.socket.getsockname()[1]}/v1/responses"
        server.shutdown()


def by_threads(url: str) -> None:
    from websockets.sync.client import connect

    with connect(url, proxy=None) as connection:
        connection.send(json.dumps(CREATE))
        while json.loads(connection.recv())["type"] != "response.completed":
            pass


async def by_asyncio(url: str) -> None:
    from websockets.asyncio.client import connect

    async with connect(url, proxy=None) as connection:
        await connection.send(json.dumps(CREATE))
        async for message in connection:
            if json.loads(message)["type"] == "response.completed":
                break


def by_openai(url: str) -> None:
    openai = pytest.importorskip("openai")
    base = url.removesuffix("/responses")
    with openai.OpenAI(api_key="k", websocket_base_url=base) as client, client.responses.connect() as connection:
        connection.response.create(model="m", input="hi")
        for event in connection:
            if event.type == "response.completed":
                break


CLIENTS: dict[str, Callable[[str], Any]] = {"threads": by_threads, "asyncio": by_asyncio, "openai": by_openai}
LIVE = {"model": "openai:m?base_url=http://127.0.0.1:9"}


def make_agent(client: str, url: str) -> Callable[[Task], Any]:
    use = CLIENTS[client]

    async def async_agent(task: Task) -> str:
        await use(url)
        return "re: hi"

    def agent(task: Task) -> str:
        use(url)
        return "re: hi"

    return async_agent if client == "asyncio" else agent


@pytest.mark.filterwarnings("ignore:connect.. must be used as a context manager:DeprecationWarning")  # openai's
@pytest.mark.parametrize("settings", [LIVE, {"record": "all"}], ids=["live", "recorded"])
@pytest.mark.parametrize("client", CLIENTS)
def test_a_call_over_a_websocket_is_on_record(client: str, settings: dict[str, Any], url: str, run: Run) -> None:
    case = case_from_dict({"input": {"message": "hi"}, "expected_output": {"forbidden_function_calls": ["check"]}})
    verdict = run(make_agent(client, url), case, **settings)

    assert [reason.code for reason in verdict.reasons] == ["forbidden_call"], verdict.reasons
    (turn,) = verdict.transcript.turns
    assert turn.usage is not None
    assert (turn.usage.input_tokens, turn.calls[0].name) == (5, "check")
    told = f"a WebSocket is not recorded, so the case can't be replayed: the agent asked {url}"
    assert (told in verdict.warnings) is ("record" in settings)


def test_a_websocket_of_something_else_is_unobserved(url: str, run: Run) -> None:
    def agent(task: Task) -> str:
        from websockets.sync.client import connect

        with connect(url.replace("responses", "realtime"), proxy=None) as connection:
            connection.send(json.dumps({"type": "session.update"}))
        return "re: hi"

    case = case_from_dict({"input": {"message": "hi"}, "expected_output": {"expected_function_calls": []}})
    verdict = run(agent, case, **LIVE)

    assert [reason.code for reason in verdict.reasons] == ["unobserved"], verdict.reasons


def test_two_responses_at_once_are_unobserved(url: str, run: Run) -> None:
    def agent(task: Task) -> str:
        from websockets.sync.client import connect

        with connect(url, proxy=None) as connection:
            for _ in range(2):
                connection.send(json.dumps(CREATE))
            for _ in range(2 * len(EVENTS)):
                connection.recv()
        return "re: hi"

    case = case_from_dict({"input": {"message": "hi"}, "expected_output": {"forbidden_function_calls": ["refund"]}})
    verdict = run(agent, case, **LIVE)

    assert [reason.code for reason in verdict.reasons] == ["unobserved"], verdict.reasons
